package dev.penstock.kernel.log;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The log as a Spark table, whose schema the caller provides. */
abstract class LogTable implements Table {
  /** Provides such tables to Spark. */
  abstract static class Provider implements TableProvider {
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
      throw new IllegalArgumentException("the log needs a schema");
    }

    @Override
    public boolean supportsExternalMetadata() {
      return true;
    }

    @Override
    public abstract LogTable getTable(StructType schema, Transform[] partitioning, Map<String, String> options);
  }

  final StructType schema;
  private final Set<TableCapability> capabilities;

  LogTable(StructType schema, TableCapability... capabilities) {
    this.schema = schema;
    this.capabilities = Set.of(capabilities);
  }

  @Override
  public String name() {
    return "penstock";
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return capabilities;
  }
}
