// Exists so that one target owns the precompiled header of cmake/torch_pch.h.
