// The signals of callers.

interface Watched {
  callbacks: Set<() => void>;
  listener: () => void;
}

const watched = new WeakMap<AbortSignal, Watched>();

/**
 * Calls back when a signal aborts. Returns how to stop that. All that watch a signal share one
 * listener: an app may give one signal to many locks, and Node warns of more than ten listeners.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const { callbacks, listener } = watched.get(signal) ?? watch(signal);
  callbacks.add(callback);
  return () => {
    callbacks.delete(callback);
    if (callbacks.size === 0) {
      signal.removeEventListener("abort", listener);
      watched.delete(signal);
    }
  };
}

function watch(signal: AbortSignal): Watched {
  const callbacks = new Set<() => void>();
  const listener = () => {
    for (const callback of callbacks) {
      callback();
    }
  };
  signal.addEventListener("abort", listener);
  const made = { callbacks, listener };
  watched.set(signal, made);
  return made;
}
