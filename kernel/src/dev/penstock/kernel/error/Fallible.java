package dev.penstock.kernel.error;

import java.math.BigInteger;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.spark.sql.catalyst.expressions.Abs;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.BitwiseAnd;
import org.apache.spark.sql.catalyst.expressions.BitwiseOr;
import org.apache.spark.sql.catalyst.expressions.BitwiseXor;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionDef;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionRef;
import org.apache.spark.sql.catalyst.expressions.DivModLike;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.IsValidUTF8;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.MakeValidUTF8;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.Pmod;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.Remainder;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.StringSplit;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.expressions.TryValidateUTF8;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.ValidateUTF8;
import org.apache.spark.sql.catalyst.expressions.With;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DecimalType$;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decides which expressions can fail for a row. An expression is safe only if its class, or its class and types, is known to be. All
 * others may fail, including user-defined functions; guarding one too many costs little.
 */
public final class Fallible {
  private static final String SPARK = "org.apache.spark.sql.catalyst.expressions.";
  private static final String KERNEL = "dev.penstock.kernel.";

  /** Spark expressions that return a value or NULL for all arguments. */
  private static final Set<String> SAFE = Set.of(
      // References and constants.
      "Alias", "AttributeReference", "BoundReference", "Literal", "NamedLambdaVariable", "LambdaFunction",
      "SparkPartitionID", "MonotonicallyIncreasingID", "Rand", "Randn", "Uuid", "CurrentDate", "CurrentTimestamp", "Now",
      "LocalTimestamp", "CurrentBatchTimestamp", "KnownNotNull", "KnownNullable", "KnownFloatingPointNormalized",
      // Conditions.
      "And", "Or", "Not", "IsNull", "IsNotNull", "IsNaN", "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual",
      "GreaterThan", "GreaterThanOrEqual", "In", "InSet", "Coalesce", "If", "CaseWhen", "NaNvl", "Greatest", "Least",
      "AtLeastNNonNulls", "StartsWith", "EndsWith", "Contains",
      // Unbounded numbers, and bits.
      "Sqrt", "Cbrt", "Exp", "Expm1", "Log", "Log10", "Log2", "Log1p", "Logarithm", "Pow", "Hypot", "Sin", "Cos", "Tan",
      "Asin", "Acos", "Atan", "Atan2", "Sinh", "Cosh", "Tanh", "Signum", "Rint", "ToDegrees", "ToRadians", "Pi",
      "EulerNumber", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitwiseCount", "ShiftLeft", "ShiftRight",
      "ShiftRightUnsigned", "UnaryPositive",
      // Texts.
      "ConcatWs", "Upper", "Lower", "InitCap", "Length", "OctetLength", "BitLength", "Substring", "SubstringIndex",
      "StringTrim", "StringTrimLeft", "StringTrimRight", "StringReplace", "StringTranslate", "StringInstr",
      "StringLocate", "Ascii", "Levenshtein", "SoundEx", "Md5", "Sha1", "Sha2", "Crc32", "XxHash64", "Murmur3Hash",
      "Hex", "Base64", "GetJsonObject",
      // Dates and times that cannot leave their range.
      "Year", "Quarter", "Month", "DayOfMonth", "DayOfWeek", "WeekDay", "DayOfYear", "WeekOfYear", "Hour", "Minute",
      "Second", "DateDiff", "DateAdd", "DateSub", "UnixMicros", "UnixMillis", "UnixSeconds", "UnixDate",
      "DateFromUnixDate", "MicrosToTimestamp", "TruncTimestamp", "TruncDate",
      // Nested values.
      "GetStructField", "GetArrayStructFields", "GetMapValue", "CreateNamedStruct", "CreateArray", "Size", "ArrayContains",
      "MapKeys", "MapValues", "ArrayTransform", "ArrayFilter", "ArrayExists", "ArrayForAll", "ArrayMin", "ArrayMax",
      "ArrayDistinct", "ArrayPosition");

  private Fallible() {}

  /** Whether the expression can fail for some row. */
  public static boolean test(Expression e) {
    if (e instanceof RuntimeReplaceable replaceable) {
      return test(replaceable.replacement());
    }
    if (e instanceof With) {
      return test(inlined(e));
    }
    if (e instanceof TryEval || e instanceof Caught) {
      return false;
    }
    if (e.foldable()) {
      return !evaluates(e);
    }
    if (!safe(e)) {
      return true;
    }
    for (Expression child : CollectionConverters.asJava(e.children())) {
      if (test(child)) {
        return true;
      }
    }
    return false;
  }

  /**
   * The expression with all common subexpressions inlined. Spark evaluates common subexpressions before the node that has
   * the expression; here they are evaluated in place, so that a failure can be caught.
   */
  static Expression inlined(Expression e) {
    return inlined(e, new HashMap<>(), false);
  }

  /** {@code asIs}: the enclosing function handles bytes that are not UTF-8. */
  private static Expression inlined(Expression e, Map<Object, Expression> shared, boolean asIs) {
    if (e instanceof RuntimeReplaceable replaceable) {
      return inlined(replaceable.replacement(), shared, asIs || aboutUtf8(e));
    }
    if (e instanceof CommonExpressionRef ref && shared.containsKey(ref.id())) {
      return shared.get(ref.id());
    }
    if (e instanceof With with) {
      for (CommonExpressionDef def : CollectionConverters.asJava(with.defs())) {
        shared.put(def.id(), inlined(def.child(), shared, asIs));
      }
      return inlined(with.child(), shared, asIs);
    }
    Expression made = (Expression) e.mapChildren(child -> inlined((Expression) child, shared, asIs));
    if (made instanceof Cast cast && fromBytes(cast)) {
      return asIs ? cast : tries(cast) ? new TryValidateUTF8(cast).replacement() : new ValidateUTF8(cast).replacement();
    }
    if (made.stateful() && made.deterministic() && !(made instanceof OfOne) && !safe(made)) {
      return new Renewed(made);
    }
    return made instanceof PythonUDF call ? PythonFunctions.caught(call) : made;
  }

  private static boolean aboutUtf8(Expression e) {
    return e instanceof IsValidUTF8 || e instanceof MakeValidUTF8 || e instanceof TryValidateUTF8
        || e instanceof ValidateUTF8;
  }

  /** Whether the cast turns bytes into a string. Spark accepts any bytes; the log and the view store hold only UTF-8. */
  private static boolean fromBytes(Cast cast) {
    return cast.child().dataType() instanceof BinaryType && cast.dataType() instanceof StringType;
  }

  private static boolean tries(Cast cast) {
    return EvalMode$.MODULE$.TRY().equals(cast.evalMode());
  }

  private static boolean evaluates(Expression e) {
    try {
      inlined(e).eval(null);
      return true;
    } catch (RuntimeException failed) {
      return false;
    }
  }

  /** Whether the expression itself is safe if its arguments are. */
  private static boolean safe(Expression e) {
    if (e instanceof Cast cast) {
      boolean fails = EvalMode$.MODULE$.ANSI().equals(cast.evalMode());
      return !fromBytes(cast) && (!fails || casts(cast.child().dataType(), cast.dataType()));
    }
    if (e instanceof BinaryArithmetic && !bitwise(e) || e instanceof UnaryMinus || e instanceof Abs) {
      return computes(e);
    }
    if (e instanceof ElementAt at) {
      return at.left().dataType() instanceof MapType;
    }
    if (e instanceof GetArrayItem item) {
      return !item.failOnError();
    }
    if (e instanceof Like like) {
      return like.right().foldable() && evaluates(like.right())
          && String.valueOf(like.right().eval(null)).indexOf(like.escapeChar()) < 0;
    }
    if (e instanceof RLike like) {
      return matches(like.right());
    }
    if (e instanceof StringSplit split) {
      return matches(split.regex());
    }
    String name = e.getClass().getName();
    if (name.startsWith(KERNEL)) {
      return !(e instanceof Failing);
    }
    if (!name.startsWith(SPARK)) {
      return false;
    }
    return switch (name.substring(SPARK.length())) {
      case "Floor", "Ceil" -> e.dataType() instanceof LongType;
      case "Round", "BRound" -> e.dataType() instanceof DoubleType || e.dataType() instanceof FloatType;
      case "Concat", "Reverse" -> e.dataType() instanceof StringType || e.dataType() instanceof BinaryType;
      default -> SAFE.contains(name.substring(SPARK.length()));
    };
  }

  /** A kernel expression whose purpose is to fail. */
  interface Failing {}

  private static boolean matches(Expression regex) {
    if (!regex.foldable() || !evaluates(regex)) {
      return false;
    }
    try {
      Pattern.compile(String.valueOf(regex.eval(null)));
      return true;
    } catch (PatternSyntaxException e) {
      return false;
    }
  }

  private static boolean casts(DataType from, DataType to) {
    boolean time = from instanceof TimestampType || from instanceof TimestampNTZType;
    if (from instanceof DateType && !(to instanceof DateType || to instanceof StringType)) {
      return false; // some dates are out of range for timestamps
    }
    if (from.equals(to) || from instanceof NullType || Cast$.MODULE$.canUpCast(from, to)) {
      return true;
    }
    if (from instanceof ArrayType a && to instanceof ArrayType b) {
      return casts(a.elementType(), b.elementType());
    }
    if (from instanceof MapType a && to instanceof MapType b) {
      return casts(a.keyType(), b.keyType()) && casts(a.valueType(), b.valueType());
    }
    if (from instanceof StructType a && to instanceof StructType b) {
      for (int i = 0; i < a.size(); i++) {
        if (!casts(a.apply(i).dataType(), b.apply(i).dataType())) {
          return false;
        }
      }
      return true;
    }
    boolean number = from instanceof NumericType || from instanceof BooleanType;
    if (to instanceof StringType) {
      return number || time || from instanceof StringType || from instanceof DateType;
    }
    if (to instanceof DoubleType || to instanceof FloatType) {
      return number;
    }
    if (to instanceof BooleanType) {
      return number;
    }
    if (to instanceof IntegralType) {
      return from instanceof BooleanType || to instanceof LongType && from instanceof TimestampType;
    }
    return time && (to instanceof DateType || to instanceof TimestampType || to instanceof TimestampNTZType);
  }

  private static boolean computes(Expression e) {
    if (e instanceof BinaryArithmetic binary && (!binary.failOnError() || EvalMode$.MODULE$.TRY().equals(binary.evalMode()))
        || e instanceof UnaryMinus minus && !minus.failOnError()
        || e instanceof Abs abs && !abs.failOnError()) {
      return true;
    }
    boolean divides = e instanceof DivModLike || e instanceof Pmod;
    if (divides) {
      BinaryArithmetic division = (BinaryArithmetic) e;
      if (!division.right().foldable() || !evaluates(division.right()) || isZero(division.right().eval(null))) {
        return false;
      }
    }
    DataType type = e.dataType();
    if (type instanceof DoubleType || type instanceof FloatType) {
      return true;
    }
    if (type instanceof DecimalType decimal) {
      return decimal.precision() < DecimalType$.MODULE$.MAX_PRECISION();
    }
    return range(e) != null;
  }

  private static boolean bitwise(Expression e) {
    return e instanceof BitwiseAnd || e instanceof BitwiseOr || e instanceof BitwiseXor;
  }

  private static boolean isZero(Object value) {
    return value == null || value.toString().matches("-?0+(\\.0+)?(E-?\\d+)?");
  }

  /** The smallest and largest value of an integer expression; null if it can overflow its type or is not an integer. */
  private static BigInteger[] range(Expression e) {
    BigInteger[] whole = range(e.dataType());
    if (whole == null) {
      return null;
    }
    if (e.foldable()) {
      Object value = evaluates(e) ? inlined(e).eval(null) : null;
      return value instanceof Number n ? between(n.longValue(), n.longValue()) : whole;
    }
    if (e instanceof Cast cast) {
      BigInteger[] inner = range(cast.child().dataType()) == null ? null : range(cast.child());
      return inner != null && within(inner, whole) ? inner : whole;
    }
    BigInteger[] out = null;
    if (e instanceof BinaryArithmetic binary && !bitwise(e)) {
      BigInteger[] a = range(binary.left());
      BigInteger[] b = range(binary.right());
      if (a == null || b == null) {
        return null;
      }
      if (e instanceof Add) {
        out = new BigInteger[] {a[0].add(b[0]), a[1].add(b[1])};
      } else if (e instanceof Subtract) {
        out = new BigInteger[] {a[0].subtract(b[1]), a[1].subtract(b[0])};
      } else if (e instanceof Multiply) {
        BigInteger[] corners =
            {a[0].multiply(b[0]), a[0].multiply(b[1]), a[1].multiply(b[0]), a[1].multiply(b[1])};
        java.util.Arrays.sort(corners);
        out = new BigInteger[] {corners[0], corners[3]};
      } else if (e instanceof IntegralDivide) {
        BigInteger low = a[b[0].signum() > 0 ? 0 : 1];
        BigInteger high = a[b[0].signum() > 0 ? 1 : 0];
        out = b[0].equals(b[1]) && b[0].signum() != 0
            ? new BigInteger[] {low.divide(b[0]), high.divide(b[0])}
            : null;
      } else if (e instanceof Remainder || e instanceof Pmod) {
        BigInteger most = b[0].abs().max(b[1].abs()).subtract(BigInteger.ONE);
        out = new BigInteger[] {e instanceof Pmod && b[0].signum() > 0 ? BigInteger.ZERO : most.negate(), most};
      }
    } else if (e instanceof UnaryMinus minus) {
      BigInteger[] a = range(minus.child());
      out = a == null ? null : new BigInteger[] {a[1].negate(), a[0].negate()};
    } else if (e instanceof Abs abs) {
      BigInteger[] a = range(abs.child());
      out = a == null ? null : new BigInteger[] {BigInteger.ZERO, a[0].abs().max(a[1].abs())};
    } else {
      return whole;
    }
    return out != null && within(out, whole) ? out : null;
  }

  private static boolean within(BigInteger[] inner, BigInteger[] outer) {
    return inner[0].compareTo(outer[0]) >= 0 && inner[1].compareTo(outer[1]) <= 0;
  }

  private static BigInteger[] range(DataType type) {
    if (type instanceof LongType) {
      return between(Long.MIN_VALUE, Long.MAX_VALUE);
    } else if (type instanceof IntegerType) {
      return between(Integer.MIN_VALUE, Integer.MAX_VALUE);
    } else if (type instanceof ShortType) {
      return between(Short.MIN_VALUE, Short.MAX_VALUE);
    } else if (type instanceof ByteType) {
      return between(Byte.MIN_VALUE, Byte.MAX_VALUE);
    }
    return null;
  }

  private static BigInteger[] between(long low, long high) {
    return new BigInteger[] {BigInteger.valueOf(low), BigInteger.valueOf(high)};
  }
}
