package dev.penstock.kernel.host;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.util.ConfigUtil;

/**
 * Reduces Hadoop's settings. Spark copies, serialises and broadcasts all of them for every stateful operator in every epoch. Two
 * thirds are defaults of YARN and MapReduce, which are only used if Spark runs on YARN.
 */
public final class HadoopSettings {
  private static final Set<String> DEFAULTS = Set.of("yarn-default.xml", "mapred-default.xml");

  private HadoopSettings() {}

  /** Drops the settings that come only from these defaults. */
  public static void withoutYarn(Configuration settings) {
    // Load them now: otherwise the first class that needs them would add them to all existing settings.
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
