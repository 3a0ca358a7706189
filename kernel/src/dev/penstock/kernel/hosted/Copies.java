package dev.penstock.kernel.hosted;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.io.UncheckedIOException;

/** Copies of a query's code, without the parts that are compiled for one thread. */
final class Copies {
  private Copies() {}

  static byte[] bytes(Object code) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(code);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  static Object of(byte[] bytes) {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes)) {
      @Override
      protected Class<?> resolveClass(ObjectStreamClass type) throws IOException, ClassNotFoundException {
        try {
          return Class.forName(type.getName(), false, loader);
        } catch (ClassNotFoundException e) {
          return super.resolveClass(type);
        }
      }
    }) {
      return in.readObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(e);
    }
  }
}
