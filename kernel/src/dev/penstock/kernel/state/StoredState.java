package dev.penstock.kernel.state;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider.RocksDBStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.reflect.ClassTag$;

/**
 * The state of a job in Spark's state store, for tasks outside Spark's streaming engine. State has one floor for each depth of the job's operators, and each floor is partitioned. A task
 * reads one version of a partition and commits the next. Each version has a unique name, so the version of a failed attempt is never mistaken for that of another.
 */
public final class StoredState implements Serializable {
  private static final long serialVersionUID = 1L;
  /**
   * Versions between two snapshots. Each change log lists the versions since the last snapshot, and has room for about 860; small epochs commit that many
   * before the store's own maintenance runs.
   */
  private static final int UPKEEP = 300;

  private record Settings(StateStoreConf store, SerializableConfiguration hadoop) implements Serializable {}

  private final String root;
  private final UUID run;
  private final Broadcast<Settings> settings;
  /** In the driver: the value that tasks in other processes read from the broadcast. */
  private final transient Settings known;
  private final transient StateStoreCoordinatorRef places;
  /** Stores opened in the driver's process. Spark reports every opening to its coordinator, one at a time, and waits for the reply; these stores exist nowhere else, so it need not. */
  private final transient Map<StateStoreProviderId, StateStoreProvider> stores = new ConcurrentHashMap<>();

  /** @param checkpoint the folder that holds the state */
  public StoredState(SparkSession spark, String checkpoint) {
    root = checkpoint + "/state";
    run = UUID.randomUUID();
    known = new Settings(
        new StateStoreConf(spark.sessionState().conf().clone(), scala.collection.immutable.Map$.MODULE$.empty()),
        new SerializableConfiguration(spark.sessionState().newHadoopConf()));
    settings = spark.sparkContext().broadcast(known, ClassTag$.MODULE$.apply(Settings.class));
    // Tasks report to the coordinator, which starts on first use.
    StateStoreCoordinatorRef coordinator = spark.streams().stateStoreCoordinator();
    places = spark.sparkContext().isLocal() ? null : coordinator;
  }

  private StateStoreProviderId id(int floor, int partition) {
    return new StateStoreProviderId(new StateStoreId(root, floor, partition, StateStoreId.DEFAULT_STORE_NAME()), run);
  }

  /** The last location of a partition's state; a task that runs there need not fetch it. */
  public List<String> places(int floor, int partition) {
    Option<String> place = places == null ? Option.empty() : places.getLocation(id(floor, partition));
    return place.isEmpty() ? List.of() : List.of(place.get());
  }

  /**
   * Releases the state of a job that has ended. Other processes unload it in time; the driver does so at once, see {@link LoadedState}.
   */
  public void forget(SparkSession spark) {
    spark.streams().stateStoreCoordinator().deactivateInstances(run);
    stores.forEach(LoadedState::close);
    settings.destroy();
  }

  /** Opens a partition for update. {@code name}: of its version; empty if there is none yet. */
  public Opened open(int floor, int partition, String name) {
    int colon = name.indexOf(':');
    long version = name.isEmpty() ? 0 : Long.parseLong(name.substring(0, colon));
    Option<String> called = name.isEmpty() ? Option.empty() : Option.apply(name.substring(colon + 1));
    StateStoreProviderId id = id(floor, partition);
    StateStoreProvider provider = known == null ? null : stores.get(id);
    if (provider != null && !provider.unloaded()) {
      return new Opened(version, provider.getStore(version, called, false, false));
    }
    Settings all = known != null ? known : settings.value();
    StateStore store = StateStore$.MODULE$.get(
        id, RawKeys.SCHEMA, RawKeys.SCHEMA, RawKeys.INSTANCE, version, called, Option.empty(), false, all.store,
        all.hadoop.value(), false);
    if (known != null) {
      stores.put(id, ((RocksDBStateStore) store).creatingProvider());
    }
    return new Opened(version, store);
  }

  /** A partition of the state in a task. */
  public static final class Opened {
    private final long version;
    private final StateStore store;
    final TaskState state;

    private Opened(long version, StateStore store) {
      this.version = version;
      this.store = store;
      this.state = new TaskState(store, StateStore.DEFAULT_COL_FAMILY_NAME());
    }

    /** Commits the next version and returns its name. */
    public String commit() {
      store.commit();
      CrashPoint.reached("jvm.committed");
      String name = version + 1 + ":" + store.getStateStoreCheckpointInfo().stateStoreCkptId().get();
      if ((version + 1) % UPKEEP == 0) {
        Upkeep.begin(store);
      }
      return name;
    }

    /** Undoes all changes. */
    public void abort() {
      if (!store.hasCommitted()) {
        store.abort();
      }
    }
  }
}
