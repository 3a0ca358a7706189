package dev.penstock.kernel.state;

import java.lang.reflect.Method;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.locks.Lock;
import java.util.stream.Collectors;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import scala.collection.mutable.HashMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The state that this process has open. The store's upkeep closes that of a query that has ended within ten seconds, and before that writes one more snapshot, and removes what is too old for it. Meanwhile the
 * folder may have gone, or be that of an earlier checkpoint, whose versions would be too old.
 */
public final class LoadedState {
  private static final Method LOADED;

  static {
    try {
      LOADED = StateStore$.class.getDeclaredMethod("loadedProviders");
      LOADED.setAccessible(true);
    } catch (NoSuchMethodException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private LoadedState() {}

  /** A run of a query has ended: closes its state, once nothing of it is being written any more. On a cluster the executors have it, and let go of it in time. Returns how many partitions were open. */
  public static int forget(String run) throws ReflectiveOperationException {
    UUID ended = UUID.fromString(run);
    @SuppressWarnings("unchecked")
    var loaded = (HashMap<StateStoreProviderId, StateStoreProvider>) LOADED.invoke(StateStore$.MODULE$);
    Map<StateStoreProviderId, StateStoreProvider> found;
    synchronized (loaded) {
      found = CollectionConverters.asJava(loaded).entrySet().stream()
          .filter(e -> e.getKey().queryRunId().equals(ended))
          .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
    }
    found.forEach(LoadedState::close);
    return found.size();
  }

  static void close(StateStoreProviderId id, StateStoreProvider provider) {
    // Upkeep holds the other half of the lock.
    Lock alone = provider.maintenanceLock().writeLock();
    alone.lock();
    try {
      if (!provider.unloaded()) {
        StateStore$.MODULE$.removeFromLoadedProvidersAndClose(id);
      }
    } finally {
      alone.unlock();
    }
  }
}
