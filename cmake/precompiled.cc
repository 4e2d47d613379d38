// A target that owns a precompiled header needs a source; this one has nothing in it.
