package dev.penstock.kernel.state;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.Lock;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider.RocksDBStateStore;

/**
 * Uploads snapshots of state for tasks that commit versions faster than the store's own maintenance runs. It has its own thread, so tasks do not wait for an upload, and the state stays open: reopening
 * it would take longer than an epoch.
 */
final class Upkeep {
  private static final Executor THREAD = Executors.newSingleThreadExecutor(work -> {
    Thread thread = new Thread(work, "penstock-upkeep");
    thread.setDaemon(true);
    return thread;
  });
  private static final Map<StateStoreProvider, CompletableFuture<Void>> UNDER_WAY = new ConcurrentHashMap<>();

  private Upkeep() {}

  /** Starts to upload the newest snapshot of a store. Blocks while the previous upload is still running. */
  static void begin(StateStore store) {
    StateStoreProvider provider = ((RocksDBStateStore) store).creatingProvider();
    CompletableFuture<Void> before = UNDER_WAY.get(provider);
    if (before != null) {
      before.join();
    }
    CompletableFuture<Void> now = CompletableFuture.runAsync(() -> upload(provider), THREAD);
    UNDER_WAY.put(provider, now);
    now.whenComplete((nothing, failure) -> UNDER_WAY.remove(provider, now));
  }

  private static void upload(StateStoreProvider provider) {
    // Keeps out the store's own maintenance and its close.
    Lock alone = provider.maintenanceLock().writeLock();
    alone.lock();
    try {
      if (!provider.unloaded()) {
        provider.doSnapshotMaintenance();
      }
    } finally {
      alone.unlock();
    }
  }
}
