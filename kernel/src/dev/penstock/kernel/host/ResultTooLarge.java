package dev.penstock.kernel.host;

import java.io.IOException;

/** Fails the query whose result has grown past its limit. Python knows it by the name of this class. */
public final class ResultTooLarge extends IOException {
  private static final long serialVersionUID = 1L;

  ResultTooLarge(long limit) {
    super("the result has more than " + limit + " bytes");
  }
}
