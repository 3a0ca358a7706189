package dev.penstock.kernel.host;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** The CPU time of this process, with that of its compilers and collectors. */
public final class CpuTime {

  private CpuTime() {}

  /** In milliseconds; -1 if the system does not report it. */
  public static long ms() {
    OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long nanos = system.getProcessCpuTime();
    return nanos < 0 ? -1 : nanos / 1_000_000;
  }
}
