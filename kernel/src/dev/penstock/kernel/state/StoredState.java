package dev.penstock.kernel.state;

import java.io.Serializable;
import java.util.List;
import java.util.UUID;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.reflect.ClassTag$;

/**
 * The state of a job in Spark's state store, for tasks that Spark's engine for streams does not run. State is cut into partitions; each epoch
 * reads one version of each and makes the next. A version has a name of its own, so one that a failed attempt has made is never taken for that of another.
 */
public final class StoredState implements Serializable {
  private static final long serialVersionUID = 1L;

  private record Settings(StateStoreConf store, SerializableConfiguration hadoop) implements Serializable {}

  private final String root;
  private final UUID run;
  private final Broadcast<Settings> settings;
  private final transient StateStoreCoordinatorRef places;

  /** @param checkpoint the folder that state is kept in */
  public StoredState(SparkSession spark, String checkpoint) {
    root = checkpoint + "/state";
    run = UUID.randomUUID();
    Settings all = new Settings(
        new StateStoreConf(spark.sessionState().conf().clone(), scala.collection.immutable.Map$.MODULE$.empty()),
        new SerializableConfiguration(spark.sessionState().newHadoopConf()));
    settings = spark.sparkContext().broadcast(all, ClassTag$.MODULE$.apply(Settings.class));
    places = spark.sparkContext().isLocal() ? null : spark.streams().stateStoreCoordinator();
  }

  private StateStoreProviderId id(int partition) {
    return new StateStoreProviderId(new StateStoreId(root, 0, partition, StateStoreId.DEFAULT_STORE_NAME()), run);
  }

  /** Where the state of a partition was last; a task that runs there need not fetch it. */
  public List<String> places(int partition) {
    Option<String> place = places == null ? Option.empty() : places.getLocation(id(partition));
    return place.isEmpty() ? List.of() : List.of(place.get());
  }

  /** The job has ended. Processes that hold its state let go of it in time. */
  public void forget(SparkSession spark) {
    spark.streams().stateStoreCoordinator().deactivateInstances(run);
    settings.destroy();
  }

  /** The state of a partition before an epoch, to be changed by a task. {@code name}: of that version; null in the first epoch. */
  public Opened open(int partition, long epoch, String name) {
    Settings all = settings.value();
    return new Opened(StateStore$.MODULE$.get(
        id(partition), RawKeys.SCHEMA, RawKeys.SCHEMA, RawKeys.INSTANCE, epoch, Option.apply(name), Option.empty(), false,
        all.store, all.hadoop.value(), false));
  }

  /** The state of a partition in a task. */
  public static final class Opened {
    private final StateStore store;
    final TaskState state;

    private Opened(StateStore store) {
      this.store = store;
      this.state = new TaskState(store, StateStore.DEFAULT_COL_FAMILY_NAME());
    }

    /** Makes the next version; returns its name. */
    public String commit() {
      store.commit();
      return store.getStateStoreCheckpointInfo().stateStoreCkptId().get();
    }

    /** Undoes all changes. */
    public void abort() {
      if (!store.hasCommitted()) {
        store.abort();
      }
    }
  }
}
