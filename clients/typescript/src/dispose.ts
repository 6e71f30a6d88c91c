/// <reference lib="esnext.disposable" preserve="true" />

// `using` and `await using` need these symbols, which early releases of Node 20 lack. Imported
// before every class that has them.
const symbols = Symbol as { asyncDispose?: symbol; dispose?: symbol };
symbols.asyncDispose ??= Symbol.for("Symbol.asyncDispose");
symbols.dispose ??= Symbol.for("Symbol.dispose");

export {};
