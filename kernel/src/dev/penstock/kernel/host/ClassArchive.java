package dev.penstock.kernel.host;

import java.lang.management.ManagementFactory;
import javax.management.ObjectName;

/**
 * Writes the classes that this JVM has loaded to an archive from which the next one takes them, parsed and verified: most of the time that
 * Spark takes to start, and to plan its first query, goes into loading classes from jars.
 */
public final class ClassArchive {

  private ClassArchive() {}

  /** Needs {@code -XX:+RecordDynamicDumpInfo}. The file is there as a whole when this returns; an exception says why it is not. */
  public static void dump(String path) throws Exception {
    ManagementFactory.getPlatformMBeanServer()
        .invoke(
            new ObjectName("com.sun.management:type=DiagnosticCommand"),
            "vmCds",
            new Object[] {new String[] {"dynamic_dump", path}},
            new String[] {String[].class.getName()});
  }
}
