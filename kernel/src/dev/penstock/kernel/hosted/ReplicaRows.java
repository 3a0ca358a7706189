package dev.penstock.kernel.hosted;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.spark.SparkEnv;
import org.apache.spark.util.Utils;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.WriteOptions;

/** Packed rows by packed key: in memory while they are small, otherwise on disk, in a temporary folder of the process. One thread writes while others read. */
final class ReplicaRows implements AutoCloseable {
  private static final long IN_MEMORY = 128L << 20;
  /** The property that overrides {@link #IN_MEMORY}, for tests. */
  private static final String LIMIT = "penstock.replica.bytes";
  /** Memory of an entry besides its bytes. */
  private static final int OVERHEAD = 120;

  /** Bytes as the key of a map; those of packed keys begin with their hash. */
  record Bytes(byte[] of) {
    @Override
    public boolean equals(Object other) {
      return other instanceof Bytes bytes && Arrays.equals(of, bytes.of);
    }

    @Override
    public int hashCode() {
      return of.length < 4 ? of.length : of[0] & 255 | (of[1] & 255) << 8 | (of[2] & 255) << 16 | of[3] << 24;
    }
  }

  private final long limit = Long.getLong(LIMIT, IN_MEMORY);
  private final ReadWriteLock open = new ReentrantReadWriteLock();
  private volatile ConcurrentHashMap<Bytes, byte[]> rows = new ConcurrentHashMap<>();
  private long size;
  private volatile RocksDB disk;
  private Options options;
  private WriteOptions writing;
  private Path folder;

  byte[] get(Bytes key) {
    ConcurrentHashMap<Bytes, byte[]> memory = rows;
    if (memory != null) {
      return memory.get(key);
    }
    open.readLock().lock();
    try {
      if (disk == null) {
        throw new IllegalStateException("the replica is closed");
      }
      return disk.get(key.of);
    } catch (RocksDBException e) {
      throw new IllegalStateException("the replica in " + folder + " cannot be read: " + e.getMessage(), e);
    } finally {
      open.readLock().unlock();
    }
  }

  /** Sets the row of a key; {@code row} null: removes it. */
  void put(Bytes key, byte[] row) {
    if (rows == null) {
      store(key, row);
      return;
    }
    byte[] old = row == null ? rows.remove(key) : rows.put(key, row);
    size += (row == null ? 0 : key.of.length + row.length + OVERHEAD)
        - (old == null ? 0 : key.of.length + old.length + OVERHEAD);
    if (size > limit) {
      spill();
    }
  }

  private void spill() {
    try {
      RocksDB.loadLibrary();
      folder = Utils.createTempDir(Utils.getLocalDir(SparkEnv.get().conf()), "replica").toPath();
      options = new Options().setCreateIfMissing(true);
      writing = new WriteOptions().setDisableWAL(true);
      disk = RocksDB.open(options, folder.toString());
    } catch (RocksDBException e) {
      throw new IllegalStateException("the replica in " + folder + " cannot be written: " + e.getMessage(), e);
    }
    rows.forEach(this::store);
    rows = null;
  }

  private void store(Bytes key, byte[] row) {
    try {
      if (row == null) {
        disk.delete(writing, key.of);
      } else {
        disk.put(writing, key.of, row);
      }
    } catch (RocksDBException e) {
      throw new IllegalStateException("the replica in " + folder + " cannot be written: " + e.getMessage(), e);
    }
  }

  /** Safe while cancelled tasks still read. */
  @Override
  public void close() {
    open.writeLock().lock();
    try {
      if (disk != null) {
        disk.close();
        disk = null;
        writing.close();
        options.close();
        Utils.deleteRecursively(folder.toFile());
      }
    } finally {
      open.writeLock().unlock();
    }
  }
}
