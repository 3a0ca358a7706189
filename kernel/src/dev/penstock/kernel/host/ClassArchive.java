package dev.penstock.kernel.host;

import java.lang.management.ManagementFactory;
import javax.management.ObjectName;

/**
 * Writes the classes that this JVM has loaded to an archive, from which the next JVM maps them, parsed and verified. Loading classes from jars
 * is most of the time that Spark needs to start and to plan its first query.
 */
public final class ClassArchive {

  private ClassArchive() {}

  /** Requires {@code -XX:+RecordDynamicDumpInfo}. The file is complete when this returns; otherwise it throws. */
  public static void dump(String path) throws Exception {
    ManagementFactory.getPlatformMBeanServer()
        .invoke(
            new ObjectName("com.sun.management:type=DiagnosticCommand"),
            "vmCds",
            new Object[] {new String[] {"dynamic_dump", path}},
            new String[] {String[].class.getName()});
  }
}
