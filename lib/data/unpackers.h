// Creates decoders for the two formats of unpacked_file.h.
#pragma once

#include <memory>

#include "data/unpacked_file.h"

namespace trainctl::data {

std::unique_ptr<Unpacker> MakeGzipUnpacker();
std::unique_ptr<Unpacker> MakeZstdUnpacker();

}  // namespace trainctl::data
