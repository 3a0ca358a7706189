package dev.penstock.kernel.log;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The output of one task of an epoch. */
public final class Written implements WriterCommitMessage {
  private static final long serialVersionUID = 1L;

  final ArrayList<EpochPart> parts;
  /** Number of late rows of each member of a shared job. */
  final HashMap<Integer, Long> late;

  Written(List<EpochPart> parts) {
    this(parts, Map.of());
  }

  Written(List<EpochPart> parts, Map<Integer, Long> late) {
    this.parts = new ArrayList<>(parts);
    this.late = new HashMap<>(late);
  }

  /** Removes its files after the epoch has failed. */
  void discard() {
    for (EpochPart p : parts) {
      if (p.path != null) {
        try {
          Files.deleteIfExists(Path.of(p.path));
        } catch (IOException e) {
          // Opening the database cleans the job's output folder.
        }
      }
    }
  }
}
