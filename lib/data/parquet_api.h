// The interface of libtrainctl_parquet.so, a table of C functions that use only plain types. The library
// exports a single symbol, which returns this table. Programs load the library with dlopen when they first
// read a Parquet file (parquet_plugin.h), so only such runs need Arrow.
//
// No function throws. A function that fails writes a null-terminated sentence to `reason`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainctl::data {

// Must be incremented whenever the declarations below change.
inline constexpr uint32_t kParquetAbi = 1;
inline constexpr char kParquetApiSymbol[] = "trainctl_parquet_api";

struct ParquetString {
  const char* bytes;  // null if the row's value is null
  size_t num_bytes;
};

struct ParquetApi {
  uint32_t abi;          // value of kParquetAbi in the plugin's build; must stay first
  uint32_t table_bytes;  // value of sizeof(ParquetApi) in the plugin's build

  // Opens a file in order to read the `num_columns` columns named in `columns`. Each must contain one string
  // per row. Sets `num_rows` to the number of rows in the file's metadata. Returns null on failure.
  void* (*open)(const char* path, const char* const* columns, size_t num_columns, int64_t* num_rows,
                char* reason, size_t reason_bytes);
  // Reads the next row. Returns 1 and the row's strings, in the order of the columns and valid until the next
  // call; 0 at the end of the file; or -1 on failure, after which only `close` may be called. Keeps one page
  // of each column in memory.
  int (*next)(void* reader, ParquetString* row, char* reason, size_t reason_bytes);
  void (*close)(void* reader);
};

using ParquetApiFunction = const ParquetApi* (*)();

}  // namespace trainctl::data
