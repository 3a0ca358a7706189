package dev.penstock.kernel.log;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** What one task of an epoch has written. */
public final class Written implements WriterCommitMessage {
  private static final long serialVersionUID = 1L;

  final ArrayList<EpochPart> parts;
  /** How many rows of each member of a shared job were late. */
  final HashMap<Integer, Long> late;

  Written(List<EpochPart> parts) {
    this(parts, Map.of());
  }

  Written(List<EpochPart> parts, Map<Integer, Long> late) {
    this.parts = new ArrayList<>(parts);
    this.late = new HashMap<>(late);
  }

  /** Removes its files: the epoch has failed. */
  void discard() {
    for (EpochPart p : parts) {
      if (p.path != null) {
        try {
          Files.deleteIfExists(Path.of(p.path));
        } catch (IOException e) {
          // The folder of a job's outputs is swept when the database is opened.
        }
      }
    }
  }
}
