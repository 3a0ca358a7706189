package dev.penstock.kernel.plan;

import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Optimizes the plan of a query when it starts instead of in every epoch. Spark plans each epoch from the analysed query, and spends most of that
 * time in a hundred optimizer rules, which have the same effect each time: only the rows differ between epochs.
 *
 * <p>A plan that reads the clock is left unchanged, because the optimizer replaces the clock by the current time.
 */
public final class PlanOnce {
  private static final String EXCLUDED = "spark.sql.optimizer.excludedRules";

  /** Rules that still run in each epoch: they simplify one in which some inputs have no rows. */
  private static final Set<String> EACH_TIME = Set.of("org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation");

  private PlanOnce() {}

  /** The same frame with its plan optimized, in a separate session, whose settings apply only to its query. */
  public static Dataset<Row> of(Dataset<Row> frame) {
    org.apache.spark.sql.classic.Dataset<Row> given = (org.apache.spark.sql.classic.Dataset<Row>) frame;
    SparkSession database = given.sparkSession();
    SparkSession own = database.cloneSession();
    LogicalPlan plan = given.logicalPlan();
    if (plan.containsPattern(TreePattern.CURRENT_LIKE())) {
      return Dataset$.MODULE$.ofRows(own, plan);
    }
    LogicalPlan optimized = database.withActive(() -> database.sessionState().optimizer().execute(plan.clone()));
    own.conf().set(EXCLUDED, String.join(",", rules(own.sessionState().optimizer())));
    optimized.setAnalyzed();
    return Dataset$.MODULE$.ofRows(own, optimized);
  }

  /** The rules that each epoch can skip. */
  private static Set<String> rules(Optimizer optimizer) {
    Set<String> names = new TreeSet<>();
    CollectionConverters.asJava(optimizer.defaultBatches())
        .forEach(batch -> CollectionConverters.asJava(batch.rules()).forEach(rule -> names.add(rule.ruleName())));
    names.removeAll(CollectionConverters.asJava(optimizer.nonExcludableRules()));
    names.removeAll(EACH_TIME);
    return names;
  }
}
