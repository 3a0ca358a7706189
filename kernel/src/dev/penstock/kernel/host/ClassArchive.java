package dev.penstock.kernel.host;

import java.lang.management.ManagementFactory;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.management.ObjectName;

/**
 * Writes the classes that this JVM has loaded to an archive, from which the next JVM maps them, parsed and verified. Spark spends most of
 * its start-up and first planning on loading classes from jars.
 */
public final class ClassArchive {

  /** A class as {@code VM.class_hierarchy} prints it: its name and the address of its loader. Hidden classes have a slash in their names. */
  private static final Pattern LOADED = Pattern.compile("(?<![\\w.$/])([\\w.$]+)/0x[0-9a-f]+$", Pattern.MULTILINE);

  private ClassArchive() {}

  /** Requires {@code -XX:+RecordDynamicDumpInfo}. The file is complete when this returns; otherwise it throws. */
  public static void dump(String path) throws Exception {
    link();
    command("vmCds", "dynamic_dump", path);
  }

  /**
   * Links every loaded class. The JVM omits unlinked ones, which are a third, because a class that others only refer to is
   * loaded but not linked.
   */
  private static void link() throws Exception {
    Matcher loaded = LOADED.matcher(command("vmClassHierarchy"));
    while (loaded.find()) {
      try {
        // Reading its members links a class without initializing it.
        Class.forName(loaded.group(1), false, ClassLoader.getSystemClassLoader()).getDeclaredConstructors();
      } catch (ClassNotFoundException | LinkageError e) {
        // It has another loader, or refers to a class that no jar has: leave it out of the archive.
      }
    }
  }

  private static String command(String name, String... arguments) throws Exception {
    return (String)
        ManagementFactory.getPlatformMBeanServer()
            .invoke(
                new ObjectName("com.sun.management:type=DiagnosticCommand"),
                name,
                new Object[] {arguments},
                new String[] {String[].class.getName()});
  }
}
