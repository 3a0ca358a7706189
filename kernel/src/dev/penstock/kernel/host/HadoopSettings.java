package dev.penstock.kernel.host;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.util.ConfigUtil;

/**
 * Makes Hadoop's settings smaller. Spark copies, serialises and broadcasts all of them for every stateful operator in every epoch, and two
 * thirds are defaults of YARN and MapReduce, which nothing asks for where Spark does not run on YARN.
 */
public final class HadoopSettings {
  private static final Set<String> DEFAULTS = Set.of("yarn-default.xml", "mapred-default.xml");

  private HadoopSettings() {}

  /** Drops what stands in these defaults and nowhere else. */
  public static void withoutYarn(Configuration settings) {
    // Otherwise they would come, to all settings there are, when a class is first used that wants them.
    ConfigUtil.loadResources();
    List<String> dropped = new ArrayList<>();
    for (Map.Entry<String, String> setting : settings) {
      String[] from = settings.getPropertySources(setting.getKey());
      if (from != null && from.length == 1 && DEFAULTS.contains(from[0])) {
        dropped.add(setting.getKey());
      }
    }
    dropped.forEach(settings::unset);
  }
}
