// A file of its own, so that the declarations of this package import none of Connect.

/** `Transport` of `@connectrpc/connect`, whose own type needs the library of the DOM. */
export interface Transport {
  unary: (...parameters: never[]) => unknown;
  stream: (...parameters: never[]) => unknown;
}
