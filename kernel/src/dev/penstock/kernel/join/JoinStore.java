package dev.penstock.kernel.join;

import dev.penstock.kernel.row.PackedRow;
import dev.penstock.kernel.state.CountedHandle;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The rows of one side of a join for the current key, ordered by a number (a time, or a hash of the row). Rows with the
 * same number are in insertion order.
 *
 * <p>Rows are stored in chunks of up to {@value #CHUNK_ROWS}. A key with one chunk is one value of the state store: one read and
 * one write per epoch. A key with more has an index (at least 16 bytes per chunk) as that value, and its chunks in a map; a lookup reads
 * the index and one chunk, however many rows there are. A key without rows has no state.
 *
 * <p>Use: {@link #open} for every key, changes in memory, {@link #flush}. A changed {@link Entry} must be passed to
 * {@link #touch}.
 */
final class JoinStore {
  static final int CHUNK_ROWS = 64;
  private static final int CHUNK_BYTES = 16384;
  /** No timer. */
  static final long NO_TIMER = Long.MIN_VALUE;

  private static final int HAS_WEIGHT = 1;
  private static final int HAS_MATCHES = 2;
  private static final int HAS_STAMP = 4;
  private static final int HAS_BESIDE = 8;

  /** A row with its position in the order, its weight and the join's own fields. */
  static final class Entry {
    final long at;
    final byte[] row;
    long weight;
    /** The total weight of its matches on the other side. */
    long matches;
    /** When it last changed (Unix ms), if rows expire. */
    long stamp;
    /** Its answer, if answers are stored. */
    byte[] beside;
    /** The change of {@link #matches} so far. */
    transient long change;
    private transient Chunk chunk;

    Entry(long at, byte[] row, long weight) {
      this.at = at;
      this.row = row;
      this.weight = weight;
    }

    private int size() {
      return 8 + 1 + 24 + 4 + row.length + (beside == null ? 0 : 4 + beside.length);
    }
  }

  private static final class Chunk {
    final long id;
    long first;
    int count;
    int bytes;
    ArrayList<Entry> entries;
    boolean dirty;
    boolean stored;

    Chunk(long id) {
      this.id = id;
    }
  }

  private final StatefulProcessorHandle handle;
  private final ValueState<byte[]> head;
  private final MapState<Long, byte[]> chunks;

  private final ArrayList<Chunk> index = new ArrayList<>();
  private final ArrayList<Long> removed = new ArrayList<>();
  /** Index of rows by their bytes, for numbers with many rows that were searched since the key was opened. */
  private final HashMap<Long, Map<PackedRow, Entry>> known = new HashMap<>();
  private boolean dirty;
  private long nextId;
  private long total;
  private long timer;
  private long rows;

  /** Opens the state called {@code name}. Call it in a processor's {@code init}. */
  JoinStore(StatefulProcessorHandle handle, String name) {
    this.handle = CountedHandle.packed(handle);
    head = this.handle.getValueState(name, Encoders.BINARY(), TTLConfig.NONE());
    chunks = this.handle.getMapState(name + "Chunks", Encoders.LONG(), Encoders.BINARY(), TTLConfig.NONE());
  }

  /** Reads the current key. */
  void open() {
    index.clear();
    removed.clear();
    known.clear();
    dirty = false;
    nextId = 0;
    total = 0;
    timer = NO_TIMER;
    rows = 0;
    byte[] bytes = head.get();
    if (bytes == null) {
      return;
    }
    ByteBuffer in = ByteBuffer.wrap(bytes);
    nextId = in.getLong();
    total = in.getLong();
    timer = in.getLong();
    int size = in.getInt();
    if (size == 1) {
      Chunk chunk = new Chunk(in.getLong());
      chunk.entries = decode(in);
      measure(chunk);
      index.add(chunk);
    } else {
      for (int i = 0; i < size; i++) {
        Chunk chunk = new Chunk(in.getLong());
        chunk.first = in.getLong();
        chunk.count = in.getInt();
        chunk.stored = true;
        index.add(chunk);
      }
    }
    rows = size();
  }

  /** Writes the changes. */
  void flush() {
    if (!dirty) {
      return;
    }
    CountedHandle.rows(handle, size() - rows);
    rows = size();
    for (Long id : removed) {
      chunks.removeKey(id);
    }
    if (index.isEmpty() && timer == NO_TIMER) {
      head.clear();
      return;
    }
    byte[] only = null;
    if (index.size() == 1) {
      Chunk chunk = index.get(0);
      only = encode(load(chunk));
      if (chunk.stored) {
        chunks.removeKey(chunk.id);
        chunk.stored = false;
      }
    } else {
      for (Chunk chunk : index) {
        if (chunk.dirty || !chunk.stored) {
          chunks.updateValue(chunk.id, encode(load(chunk)));
          chunk.stored = true;
        }
      }
    }
    int size = 28 + (only != null ? 8 + only.length : index.size() * 20);
    ByteBuffer out = ByteBuffer.allocate(size);
    out.putLong(nextId).putLong(total).putLong(timer).putInt(index.size());
    if (only != null) {
      out.putLong(index.get(0).id).put(only);
    } else {
      for (Chunk chunk : index) {
        out.putLong(chunk.id).putLong(chunk.first).putInt(chunk.count);
      }
    }
    head.update(out.array());
    for (Chunk chunk : index) {
      chunk.dirty = false;
    }
    removed.clear();
    dirty = false;
  }

  boolean isEmpty() {
    return index.isEmpty();
  }

  /** The number of distinct rows. */
  long size() {
    long size = 0;
    for (Chunk chunk : index) {
      size += chunk.count;
    }
    return size;
  }

  /** The sum of the weights of all rows; {@link #removeBefore} does not maintain it. */
  long total() {
    return total;
  }

  /** The timer that is registered for this key, or {@link #NO_TIMER}. */
  long timer() {
    return timer;
  }

  void timer(long value) {
    if (timer != value) {
      timer = value;
      dirty = true;
    }
  }

  /** A position: the entry of chunk {@code chunk} at {@code entry}, or the end. */
  final class Cursor {
    private int chunk;
    private int entry;

    private Cursor(int chunk, int entry) {
      this.chunk = chunk;
      this.entry = entry;
      settle();
    }

    private void settle() {
      while (chunk < index.size() && entry >= index.get(chunk).count) {
        chunk++;
        entry = 0;
      }
    }

    /** The entry here, or null at the end. */
    Entry get() {
      return chunk < index.size() ? load(index.get(chunk)).get(entry) : null;
    }

    void next() {
      entry++;
      settle();
    }

    /** Moves to the previous entry and returns it; null at the beginning. */
    Entry previous() {
      if (entry == 0) {
        if (chunk == 0) {
          return null;
        }
        chunk--;
        entry = index.get(chunk).count;
      }
      entry--;
      return get();
    }

    private boolean is(long at, byte[] row) {
      Entry entry = get();
      return entry.at == at && Arrays.equals(entry.row, row);
    }

    /** Marks the entry here as changed. */
    void touch() {
      index.get(chunk).dirty = true;
      dirty = true;
    }

    /** Removes the entry here; the cursor moves to the next one. */
    void remove() {
      Chunk at = index.get(chunk);
      Entry gone = load(at).remove(entry);
      forget(gone);
      total -= gone.weight;
      at.count--;
      at.bytes -= gone.size();
      at.dirty = true;
      dirty = true;
      if (at.count == 0) {
        drop(chunk);
      } else {
        at.first = at.entries.get(0).at;
      }
      settle();
    }

    /** Adds to the weight of the entry here; removes the entry if the weight becomes zero. */
    void add(long weight) {
      Entry entry = get();
      if (entry.weight + weight == 0) {
        remove();
      } else {
        entry.weight += weight;
        total += weight;
        touch();
      }
    }
  }

  /** The first entry at or after {@code at}. */
  Cursor from(long at) {
    // The last chunk that begins before `at` may hold the first entry at `at`; earlier ones cannot.
    int chunk = chunkBefore(at, false);
    ArrayList<Entry> entries = chunk < index.size() ? load(index.get(chunk)) : null;
    return new Cursor(chunk, entries == null ? 0 : position(entries, at, false));
  }

  /** The first entry after {@code at}. */
  Cursor after(long at) {
    int chunk = chunkBefore(at, true);
    ArrayList<Entry> entries = chunk < index.size() ? load(index.get(chunk)) : null;
    return new Cursor(chunk, entries == null ? 0 : position(entries, at, true));
  }

  /** The first entry. */
  Cursor start() {
    return new Cursor(0, 0);
  }

  /** The last entry at ({@code inclusive}) or before {@code at}, or null. */
  Entry last(long at, boolean inclusive) {
    return (inclusive ? after(at) : from(at)).previous();
  }

  /** Finds the last entry at or before each of a series of increasing times; the store must not change meanwhile. */
  final class Walk {
    private final Cursor next = start();
    private Entry last;

    /** The last entry at ({@code inclusive}) or before {@code at}, or null. */
    Entry last(long at, boolean inclusive) {
      for (Entry entry = next.get(); entry != null && (entry.at < at || (inclusive && entry.at == at)); entry = next.get()) {
        last = entry;
        next.next();
      }
      return last;
    }
  }

  /** The number of the first entry; there must be one. */
  long firstAt() {
    return index.get(0).first;
  }

  /** The number of the last entry; there must be one. */
  long lastAt() {
    ArrayList<Entry> entries = load(index.get(index.size() - 1));
    return entries.get(entries.size() - 1).at;
  }

  /** The entry with this number and row, or null. */
  Cursor find(long at, byte[] row) {
    Cursor near = near(at, row);
    if (near == null || near.is(at, row)) {
      return near;
    }
    Entry found = known.computeIfAbsent(at, this::knownAt).get(PackedRow.of(row, at));
    return found == null ? null : new Cursor(index.indexOf(found.chunk), found.chunk.entries.indexOf(found));
  }

  /** As {@link #find}, but only among the first {@value #CHUNK_ROWS} entries with this number, so the cost is bounded. */
  Cursor findNear(long at, byte[] row) {
    Cursor near = near(at, row);
    return near == null || near.is(at, row) ? near : null;
  }

  /** Null if no entry with this number has the row; otherwise the entry that has it, or the first one not searched. */
  private Cursor near(long at, byte[] row) {
    Cursor cursor = from(at);
    for (int i = 0; i < CHUNK_ROWS; i++) {
      Entry entry = cursor.get();
      if (entry == null || entry.at != at) {
        return null;
      }
      if (Arrays.equals(entry.row, row)) {
        return cursor;
      }
      cursor.next();
    }
    Entry next = cursor.get();
    return next == null || next.at != at ? null : cursor;
  }

  private Map<PackedRow, Entry> knownAt(long at) {
    Map<PackedRow, Entry> rows = new HashMap<>();
    Cursor cursor = from(at);
    for (Entry entry = cursor.get(); entry != null && entry.at == at; entry = cursor.get()) {
      rows.put(PackedRow.of(entry.row, at), entry);
      cursor.next();
    }
    return rows;
  }

  private void forget(Entry gone) {
    Map<PackedRow, Entry> rows = known.get(gone.at);
    if (rows != null) {
      rows.remove(PackedRow.of(gone.row, gone.at));
    }
  }

  /** Every entry. */
  List<Entry> all() {
    List<Entry> list = new ArrayList<>();
    for (Chunk chunk : index) {
      list.addAll(load(chunk));
    }
    return list;
  }

  /** Marks an entry as changed. */
  void touch(Entry entry) {
    entry.chunk.dirty = true;
    dirty = true;
  }

  /** Inserts an entry after those with the same number. */
  void put(Entry entry) {
    if (index.isEmpty()) {
      Chunk chunk = new Chunk(nextId++);
      chunk.entries = new ArrayList<>();
      index.add(chunk);
    }
    // Most rows arrive in order.
    int end = index.size() - 1;
    int number = index.get(end).first <= entry.at ? end : chunkBefore(entry.at, true);
    Chunk chunk = index.get(number);
    ArrayList<Entry> entries = load(chunk);
    int place = entries.isEmpty() || entries.get(entries.size() - 1).at <= entry.at
        ? entries.size()
        : position(entries, entry.at, true);
    boolean atEnd = place == entries.size() && number == index.size() - 1;
    entries.add(place, entry);
    entry.chunk = chunk;
    if (known.containsKey(entry.at)) {
      known.get(entry.at).put(PackedRow.of(entry.row, entry.at), entry);
    }
    chunk.count++;
    chunk.bytes += entry.size();
    chunk.first = entries.get(0).at;
    chunk.dirty = true;
    dirty = true;
    total += entry.weight;
    if (chunk.count > CHUNK_ROWS || (chunk.bytes > CHUNK_BYTES && chunk.count > 1)) {
      // Rows that arrive in order fill chunks completely; otherwise both halves keep space.
      split(number, atEnd ? chunk.count - 1 : chunk.count / 2);
    }
  }

  private void split(int number, int place) {
    Chunk chunk = index.get(number);
    Chunk next = new Chunk(nextId++);
    List<Entry> tail = chunk.entries.subList(place, chunk.count);
    next.entries = new ArrayList<>(tail);
    tail.clear();
    measure(chunk);
    measure(next);
    chunk.dirty = true;
    next.dirty = true;
    index.add(number + 1, next);
  }

  /** Removes every entry before {@code at}, and passes each to {@code seen} if it is not null. */
  void removeBefore(long at, Consumer<Entry> seen) {
    known.keySet().removeIf(number -> number < at);
    while (!index.isEmpty() && index.get(0).first < at) {
      Chunk chunk = index.get(0);
      boolean whole = index.size() > 1 && index.get(1).first < at;
      if (whole && seen == null) {
        drop(0);
        continue;
      }
      ArrayList<Entry> entries = load(chunk);
      int place = position(entries, at, false);
      List<Entry> gone = entries.subList(0, place);
      if (seen != null) {
        gone.forEach(seen);
      }
      gone.clear();
      chunk.dirty = true;
      dirty = true;
      if (entries.isEmpty()) {
        drop(0);
      } else {
        measure(chunk);
      }
    }
  }

  private void drop(int number) {
    Chunk chunk = index.remove(number);
    if (chunk.stored) {
      removed.add(chunk.id);
    }
    dirty = true;
  }

  private int chunkBefore(long at, boolean inclusive) {
    int low = 0;
    int high = index.size();
    while (low < high) {
      int middle = (low + high) >>> 1;
      long first = index.get(middle).first;
      if (first < at || (inclusive && first == at)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return Math.max(0, low - 1);
  }

  private static int position(ArrayList<Entry> entries, long at, boolean behind) {
    int low = 0;
    int high = entries.size();
    while (low < high) {
      int middle = (low + high) >>> 1;
      long number = entries.get(middle).at;
      if (number < at || (behind && number == at)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private ArrayList<Entry> load(Chunk chunk) {
    if (chunk.entries == null) {
      byte[] bytes = chunks.getValue(chunk.id);
      if (bytes == null) {
        throw new IllegalStateException("chunk " + chunk.id + " of a join's state is missing");
      }
      chunk.entries = decode(ByteBuffer.wrap(bytes));
      measure(chunk);
    }
    return chunk.entries;
  }

  private static void measure(Chunk chunk) {
    chunk.count = chunk.entries.size();
    chunk.first = chunk.entries.get(0).at;
    chunk.bytes = 0;
    for (Entry entry : chunk.entries) {
      chunk.bytes += entry.size();
      entry.chunk = chunk;
    }
  }

  private static byte[] encode(ArrayList<Entry> entries) {
    int size = 4;
    for (Entry entry : entries) {
      size += entry.size();
    }
    ByteBuffer out = ByteBuffer.allocate(size);
    out.putInt(entries.size());
    for (Entry entry : entries) {
      int flags = (entry.weight != 1 ? HAS_WEIGHT : 0)
          | (entry.matches != 0 ? HAS_MATCHES : 0)
          | (entry.stamp != 0 ? HAS_STAMP : 0)
          | (entry.beside != null ? HAS_BESIDE : 0);
      out.putLong(entry.at).put((byte) flags);
      if (entry.weight != 1) {
        out.putLong(entry.weight);
      }
      if (entry.matches != 0) {
        out.putLong(entry.matches);
      }
      if (entry.stamp != 0) {
        out.putLong(entry.stamp);
      }
      out.putInt(entry.row.length).put(entry.row);
      if (entry.beside != null) {
        out.putInt(entry.beside.length).put(entry.beside);
      }
    }
    return Arrays.copyOf(out.array(), out.position());
  }

  private static ArrayList<Entry> decode(ByteBuffer in) {
    int count = in.getInt();
    ArrayList<Entry> entries = new ArrayList<>(count + 1);
    for (int i = 0; i < count; i++) {
      long at = in.getLong();
      int flags = in.get();
      long weight = (flags & HAS_WEIGHT) != 0 ? in.getLong() : 1;
      long matches = (flags & HAS_MATCHES) != 0 ? in.getLong() : 0;
      long stamp = (flags & HAS_STAMP) != 0 ? in.getLong() : 0;
      Entry entry = new Entry(at, bytes(in), weight);
      entry.matches = matches;
      entry.stamp = stamp;
      if ((flags & HAS_BESIDE) != 0) {
        entry.beside = bytes(in);
      }
      entries.add(entry);
    }
    return entries;
  }

  private static byte[] bytes(ByteBuffer in) {
    byte[] bytes = new byte[in.getInt()];
    in.get(bytes);
    return bytes;
  }
}
