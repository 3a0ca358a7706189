package dev.penstock.kernel.error;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.unsafe.types.UTF8String;

/** Encodes errors as one Arrow record-batch message: expression, error, row, {@code __weight}. */
final class ErrorBatch {
  private static final StructType SCHEMA = new StructType()
      .add("expression", DataTypes.StringType)
      .add("error", DataTypes.StringType)
      .add("row", DataTypes.StringType)
      .add("__weight", DataTypes.LongType);

  private ErrorBatch() {}

  static byte[] message(List<ErrorChannel.Failure> failures) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (BufferAllocator allocator =
            ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("penstock-errors", 0, Long.MAX_VALUE);
        VectorSchemaRoot root = VectorSchemaRoot.create(
            ArrowUtils$.MODULE$.toArrowSchema(SCHEMA, "UTC", false, false, false), allocator)) {
      ArrowWriter arrow = ArrowWriter.create(root);
      for (ErrorChannel.Failure failure : failures) {
        ErrorChannel.What what = failure.what();
        arrow.write(new GenericInternalRow(new Object[] {
          UTF8String.fromString(what.expression()), UTF8String.fromString(what.error()),
          UTF8String.fromString(what.row()), failure.weight()
        }));
      }
      arrow.finish();
      try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return out.toByteArray();
  }
}
