// Part of cpu_table.inc.h, inside its namespaces: attention by tiles with an online softmax (Milakov &
// Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). Keys and values are first copied to fp32. In
// the copy's layout all products of tiles have one form: single elements of one factor times vectors of the
// other. For a given instruction set, the order of sums depends only on the shape.

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kWideVectors = 4;  // vectors per row of a product's block, whose sums fill the registers
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kWideVectors = 2;
#else
constexpr int kVectorBytes = 16;
constexpr int kWideVectors = 2;
#endif
constexpr int kLanes = kVectorBytes / int{sizeof(float)};
static_assert(kAttentionLanes % kLanes == 0);
using Vector = float __attribute__((vector_size(kVectorBytes)));
using Integers = int32_t __attribute__((vector_size(kVectorBytes)));

inline Vector Load(const float* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void Store(float* to, Vector value) { std::memcpy(to, &value, sizeof(value)); }
inline Vector Fill(float value) { return Vector{} + value; }

template <int... kLane>
constexpr Integers LaneNumbers(std::integer_sequence<int, kLane...>) {
  return Integers{kLane...};
}
constexpr Integers kLaneNumbers = LaneNumbers(std::make_integer_sequence<int, kLanes>());

template <>
struct BitsOf<Vector> {
  using Type = Integers;
};

template <typename Combine>
inline float Reduce(Vector value, const Combine& combine) {
  float lanes[kLanes];
  std::memcpy(lanes, &value, sizeof(lanes));
#pragma GCC unroll 8
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}
inline float Sum(Vector value) {
  return Reduce(value, [](float a, float b) { return a + b; });
}
inline float Largest(Vector value) {
  return Reduce(value, [](float a, float b) { return a > b ? a : b; });
}

// The factor of a product that is read element by element. Strides are the elements between rows and inner
// elements.
struct Factor {
  const float* data;
  int64_t row_stride;
  int64_t inner_stride;
};

// Computes c [kRows, kVectors * kLanes] = a b, or c += a b if `add`. `b_stride` and `c_stride` are the
// elements between rows.
template <int kRows, int kVectors>
inline void MultiplyBlock(const Factor& a, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                          int64_t inner, bool add) {
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = add ? Load(c + r * c_stride + v * kLanes) : Vector{};
  }
  const float* element = a.data;
  for (int64_t k = 0; k < inner; ++k) {
    Vector row[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) row[v] = Load(b + k * b_stride + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vector x = Fill(element[r * a.row_stride]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] += x * row[v];
    }
    element += a.inner_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) Store(c + r * c_stride + v * kLanes, sum[r][v]);
  }
}

template <int kRows, int kVectors>
inline void MultiplyRows(Factor a, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t rows,
                         int64_t inner, bool add) {
  int64_t done = 0;
  for (; done + kRows <= rows; done += kRows) {
    MultiplyBlock<kRows, kVectors>({a.data + done * a.row_stride, a.row_stride, a.inner_stride}, b, b_stride,
                                   c + done * c_stride, c_stride, inner, add);
  }
  if constexpr (kRows > 1) {
    constexpr int kNext = kRows > 8 ? 8 : kRows > 4 ? 4 : kRows / 2;
    MultiplyRows<kNext, kVectors>({a.data + done * a.row_stride, a.row_stride, a.inner_stride}, b, b_stride,
                                  c + done * c_stride, c_stride, rows - done, inner, add);
  }
}

// Computes c [rows, columns] = a b, or c += a b if `add`. `columns` is a multiple of kLanes.
inline void Multiply(const Factor& a, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                     int64_t rows, int64_t columns, int64_t inner, bool add) {
  int64_t done = 0;
  const auto next = [&](auto vectors, auto block_rows) {
    for (; done + vectors * kLanes <= columns; done += vectors * kLanes) {
      MultiplyRows<block_rows, vectors>(a, b + done, b_stride, c + done, c_stride, rows, inner, add);
    }
  };
  if constexpr (kWideVectors == 4) next(std::integral_constant<int, 4>(), std::integral_constant<int, 6>());
  next(std::integral_constant<int, 2>(), std::integral_constant < int, kWideVectors == 4 ? 12 : 6 > ());
  next(std::integral_constant<int, 1>(), std::integral_constant<int, 12>());
}

// Hands out consecutive parts of a workspace.
class Parts {
 public:
  explicit Parts(float* begin) : next_(begin) {}
  float* Take(int64_t count) { return std::exchange(next_, next_ + count); }

 private:
  float* next_;
};

// Copies a head of [tokens, head_dim] to fp32 as [head_dim, padded tokens], with zeros as padding.
template <typename T>
void PutAcross(float* to, const T* from, int64_t stride, int64_t tokens, int64_t head_dim) {
  const int64_t padded = WholeLanes(tokens);
  // Copies squares, so that neither side is accessed with long strides.
  for (int64_t first = 0; first < padded; first += kAttentionLanes) {
    const int64_t count = std::clamp<int64_t>(tokens - first, 0, kAttentionLanes);
    for (int64_t d = 0; d < head_dim; ++d) {
      float* row = to + d * padded + first;
      for (int64_t t = 0; t < count; ++t) row[t] = Widen(from[(first + t) * stride + d]);
      for (int64_t t = count; t < kAttentionLanes; ++t) row[t] = 0;
    }
  }
}

// Copies a head to fp32 as rows of [padded head_dim], multiplied by `scale`, with zeros as padding.
template <typename T>
void PutAlong(float* to, const T* from, int64_t stride, int64_t tokens, int64_t head_dim, float scale) {
  const int64_t padded = WholeLanes(head_dim);
  for (int64_t t = 0; t < tokens; ++t) {
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) to[t * padded + d] = Widen(from[t * stride + d]) * scale;
    for (int64_t d = head_dim; d < padded; ++d) to[t * padded + d] = 0;
  }
}

// Copies rows of [padded head_dim] back to a head, multiplied by `scale` and rounded to T.
template <typename T>
void TakeAlong(T* to, int64_t stride, const float* from, int64_t tokens, int64_t head_dim, float scale) {
  const int64_t padded = WholeLanes(head_dim);
  for (int64_t t = 0; t < tokens; ++t) {
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) to[t * stride + d] = Round<T>(from[t * padded + d] * scale);
  }
}

// The scores of queries [first_query, first_query + queries) with keys [first_key, first_key + keys), in rows
// of `stride` elements. A query sees at most `window` keys.
struct Tile {
  int64_t first_query, queries;
  int64_t first_key, keys;
  int64_t window;
  int64_t stride;

  bool IsFull() const {
    return first_key + keys <= first_query + 1 && first_query + queries <= first_key + window;
  }
  // Return the tile's first key that its query `row` sees, and the end of these keys. Equal if it sees none.
  int64_t FirstSeen(int64_t row) const {
    return std::clamp<int64_t>(first_query + row + 1 - window - first_key, 0, keys);
  }
  int64_t EndSeen(int64_t row) const {
    return std::clamp<int64_t>(first_query + row + 1 - first_key, 0, keys);
  }
  // Return the tile's first query that sees key `column`, and the end of these queries.
  int64_t FirstSeeing(int64_t column) const {
    return std::clamp<int64_t>(first_key + column - first_query, 0, queries);
  }
  int64_t EndSeeing(int64_t column) const {
    return std::clamp<int64_t>(first_key + column + window - first_query, 0, queries);
  }

  // Calls function(first row, number of rows, first key, end of keys) for each strip that sees any keys. The
  // keys are those that its queries see.
  template <typename Function>
  void ForStrips(const Function& function) const {
    if (IsFull()) return function(0, queries, 0, keys);
    for (int64_t row = 0; row < queries; row += kAttentionStrip) {
      const int64_t rows = std::min(kAttentionStrip, queries - row);
      const int64_t first = FirstSeen(row);
      const int64_t end = EndSeen(row + rows - 1);
      if (first < end) function(row, rows, first, end);
    }
  }
};

// Returns the last multiple of kAttentionLanes that is not after the first key that `query` sees.
inline int64_t FirstTileKey(int64_t query, int64_t window) {
  return std::max<int64_t>(query + 1 - window, 0) / kAttentionLanes * kAttentionLanes;
}

template <typename Function>
void ForKeyTiles(int64_t first_query, int64_t queries, int64_t window, int64_t stride,
                 const Function& function) {
  const int64_t end = first_query + queries;
  for (int64_t first_key = FirstTileKey(first_query, window); first_key < end; first_key += kAttentionKeys) {
    function(
        Tile{first_query, queries, first_key, std::min(kAttentionKeys, end - first_key), window, stride});
  }
}

// Computes scores [queries, stride], for each strip only those of the keys that it sees.
inline void MultiplyByKeys(const Tile& tile, const float* rows, int64_t row_stride, const float* keys_across,
                           int64_t across_stride, int64_t head_dim, float* scores) {
  tile.ForStrips([&](int64_t row, int64_t count, int64_t first, int64_t end) {
    const int64_t begin = first / kAttentionLanes * kAttentionLanes;
    Multiply({rows + row * row_stride, row_stride, 1}, keys_across + tile.first_key + begin, across_stride,
             scores + row * tile.stride + begin, tile.stride, count, WholeLanes(end) - begin, head_dim,
             /*add=*/false);
  });
}

// Computes out [queries, padded head_dim] += scores x rows of tokens.
inline void AddProductWithTokens(const Tile& tile, const float* scores, const float* tokens_along,
                                 int64_t padded, float* out) {
  tile.ForStrips([&](int64_t row, int64_t count, int64_t first, int64_t end) {
    Multiply({scores + row * tile.stride + first, tile.stride, 1},
             tokens_along + (tile.first_key + first) * padded, padded, out + row * padded, padded, count,
             padded, end - first, /*add=*/true);
  });
}

// Computes out [keys, padded head_dim] += transposed scores x rows of queries.
inline void AddProductWithQueries(const Tile& tile, const float* scores, const float* queries_along,
                                  int64_t padded, float* out) {
  const int64_t strip = tile.IsFull() ? tile.keys : kAttentionStrip;
  for (int64_t key = 0; key < tile.keys; key += strip) {
    const int64_t count = std::min(strip, tile.keys - key);
    const int64_t first = tile.FirstSeeing(key);
    const int64_t end = tile.EndSeeing(key + count - 1);
    if (first >= end) continue;
    Multiply({scores + first * tile.stride + key, 1, tile.stride}, queries_along + first * padded, padded,
             out + (tile.first_key + key) * padded, padded, count, padded, end - first, /*add=*/true);
  }
}

// The keys [first, end) of a tile that one query sees.
struct Seen {
  int64_t first, end;
  int64_t first_vector() const { return first / kLanes * kLanes; }
};
inline Seen SeenBy(const Tile& tile, int64_t row) { return {tile.FirstSeen(row), tile.EndSeen(row)}; }

// Calls function(column, elements of `row` from there, mask of the lanes that the query sees) for all vectors
// with at least one such lane.
template <typename Function>
inline void ForVectors(const float* row, const Seen& seen, const Function& function) {
  for (int64_t column = seen.first_vector(); column < seen.end; column += kLanes) {
    Integers is_seen = kLaneNumbers < static_cast<int32_t>(seen.end - column);
    if (column < seen.first) is_seen &= kLaneNumbers >= static_cast<int32_t>(seen.first - column);
    function(column, Load(row + column), is_seen);
  }
}

// Zeroes the vectors in which the query sees no key.
inline void ZeroUnseen(float* row, const Seen& seen, int64_t stride) {
  std::fill(row, row + seen.first_vector(), 0.0f);
  const int64_t end = (seen.end + kLanes - 1) / kLanes * kLanes;
  std::fill(row + end, row + stride, 0.0f);
}

// Replaces scores by cap * tanh(score / cap).
inline void CapRow(float* row, const Seen& seen, float cap) {
  const float inverse = 1.0f / cap;
  ForVectors(row, seen,
             [&](int64_t column, Vector x, Integers) { Store(row + column, Tanh(x * inverse) * cap); });
}

// Replaces one row of scores by exp(score - maximum), and by 0 for keys that the query does not see. Updates
// the running maximum and sum. Returns the factor that converts earlier sums to the new maximum.
inline float SoftmaxRow(float* row, const Seen& seen, int64_t stride, float& maximum, float& sum) {
  Vector largest = Fill(-INFINITY);
  ForVectors(row, seen, [&](int64_t, Vector x, Integers is_seen) {
    x = is_seen ? x : Fill(-INFINITY);
    largest = x > largest ? x : largest;
  });
  const float before = maximum;
  const float found = Largest(largest);
  maximum = found > before ? found : before;
  Vector total = {};
  ForVectors(row, seen, [&](int64_t column, Vector x, Integers is_seen) {
    x = is_seen ? Exp(x - maximum) : Vector{};
    total += x;
    Store(row + column, x);
  });
  ZeroUnseen(row, seen, stride);
  const float worth = before == maximum ? 1.0f : Exp(before - maximum);
  sum = sum * worth + Sum(total);
  return worth;
}

inline void ScaleRow(float* row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; i += kLanes) Store(row + i, Load(row + i) * factor);
}

// The largest number of keys that a query may see.
inline int64_t WindowOf(const AttentionHeads& x) { return x.window > 0 ? x.window : x.tokens; }

inline float ScaleOf(const AttentionHeads& x) {
  return x.scale != 0 ? x.scale : 1.0f / std::sqrt(static_cast<float>(x.head_dim));
}

// Computes the output of queries [first_query, first_query + num_queries) of every head. The range begins and
// ends at a tile's border.
template <typename T>
void Attention(const AttentionHeads& all, void* out_raw, float* lse, int64_t first_query, int64_t num_queries,
               float* workspace) {
  AttentionHeads x = all;
  // Omits the keys that no query in the range sees. Token `skipped` becomes the first one.
  const int64_t window = WindowOf(all);
  const int64_t skipped = FirstTileKey(first_query, window);
  for (const void** rows : {&x.queries, &x.keys, &x.values})
    *rows = static_cast<const T*>(*rows) + skipped * x.qkv_stride;
  out_raw = static_cast<T*>(out_raw) + skipped * x.out_stride;
  lse += skipped;
  first_query -= skipped;
  const int64_t d = x.head_dim;
  const int64_t padded = WholeLanes(d);
  const int64_t end = first_query + num_queries;  // no query of the range sees a later key
  const int64_t across_stride = WholeLanes(end);
  const int64_t tile_rows = AttentionTileRows(end);
  const int64_t stride = AttentionTileColumns(end);
  Parts parts(workspace);
  float* const keys = parts.Take(across_stride * d);
  float* const values = parts.Take(end * padded);
  float* const queries = parts.Take(tile_rows * padded);
  float* const sums = parts.Take(tile_rows * padded);
  float* const scores = parts.Take(tile_rows * stride);
  float* const maximum = parts.Take(tile_rows);
  float* const total = parts.Take(tile_rows);
  PutAcross(keys, static_cast<const T*>(x.keys), x.qkv_stride, end, d);
  PutAlong(values, static_cast<const T*>(x.values), x.qkv_stride, end, d, 1.0f);
  const float scale = ScaleOf(x);
  for (int64_t head = 0; head < x.heads; ++head) {
    for (int64_t first = first_query; first < end; first += kAttentionQueries) {
      const int64_t rows = std::min(kAttentionQueries, end - first);
      PutAlong(queries, static_cast<const T*>(x.queries) + first * x.qkv_stride + head * d, x.qkv_stride,
               rows, d, scale);
      std::fill(sums, sums + rows * padded, 0.0f);
      std::fill(maximum, maximum + rows, -INFINITY);
      std::fill(total, total + rows, 0.0f);
      const int64_t first_tile_key = FirstTileKey(first, window);
      ForKeyTiles(first, rows, window, stride, [&](const Tile& tile) {
        MultiplyByKeys(tile, queries, padded, keys, across_stride, d, scores);
        for (int64_t row = 0; row < rows; ++row) {
          const Seen seen = SeenBy(tile, row);
          if (x.softcap != 0) CapRow(scores + row * stride, seen, x.softcap);
          const float worth = SoftmaxRow(scores + row * stride, seen, stride, maximum[row], total[row]);
          if (tile.first_key > first_tile_key && worth != 1.0f) ScaleRow(sums + row * padded, padded, worth);
        }
        AddProductWithTokens(tile, scores, values, padded, sums);
      });
      T* out = static_cast<T*>(out_raw) + first * x.out_stride + head * d;
      for (int64_t row = 0; row < rows; ++row) {
        TakeAlong(out + row * x.out_stride, x.out_stride, sums + row * padded, 1, d, 1.0f / total[row]);
        lse[head * x.lse_stride + first + row] = maximum[row] + std::log(total[row]);
      }
    }
  }
}

// Converts one row: scores become softmax weights, and dweights become the gradients of the scores. `dot` is
// the dot product of the query's output and its gradient. `cap` is used only if kCapped.
template <bool kCapped>
inline void SoftmaxGradientRow(float* scores, float* dweights, const Seen& seen, int64_t stride, float lse,
                               float dot, float cap) {
  const float inverse = kCapped ? 1.0f / cap : 0.0f;
  ForVectors(scores, seen, [&](int64_t column, Vector x, Integers is_seen) {
    const Vector tanh = kCapped ? Tanh(x * inverse) : Vector{};
    if constexpr (kCapped) x = tanh * cap;
    const Vector weight = is_seen ? Exp(x - lse) : Vector{};
    Store(scores + column, weight);
    Vector gradient = weight * (Load(dweights + column) - dot);
    if constexpr (kCapped) gradient *= 1.0f - tanh * tanh;
    Store(dweights + column, is_seen ? gradient : Vector{});
  });
  ZeroUnseen(scores, seen, stride);
  ZeroUnseen(dweights, seen, stride);
}

template <typename T>
void AttentionBackward(const AttentionHeads& x, const void* out_raw, const float* lse,
                       const AttentionGradients& gradients, float* workspace) {
  const int64_t d = x.head_dim;
  const int64_t padded = WholeLanes(d);
  const int64_t across_stride = WholeLanes(x.tokens);
  const int64_t tile_rows = AttentionTileRows(x.tokens);
  const int64_t stride = AttentionTileColumns(x.tokens);
  Parts parts(workspace);
  float* const keys_across = parts.Take(across_stride * d);
  float* const values_across = parts.Take(across_stride * d);
  float* const keys = parts.Take(x.tokens * padded);
  float* const dkeys = parts.Take(x.tokens * padded);
  float* const dvalues = parts.Take(x.tokens * padded);
  float* const queries = parts.Take(tile_rows * padded);
  float* const dout = parts.Take(tile_rows * padded);
  float* const dqueries = parts.Take(tile_rows * padded);
  float* const weights = parts.Take(tile_rows * stride);
  float* const dscores = parts.Take(tile_rows * stride);
  float* const dot = parts.Take(tile_rows);
  PutAcross(keys_across, static_cast<const T*>(x.keys), x.qkv_stride, x.tokens, d);
  PutAcross(values_across, static_cast<const T*>(x.values), x.qkv_stride, x.tokens, d);
  PutAlong(keys, static_cast<const T*>(x.keys), x.qkv_stride, x.tokens, d, 1.0f);
  std::fill(dkeys, dkeys + x.tokens * padded, 0.0f);
  std::fill(dvalues, dvalues + x.tokens * padded, 0.0f);
  const int64_t window = WindowOf(x);
  const float scale = ScaleOf(x);
  const auto softmax_gradient = x.softcap != 0 ? SoftmaxGradientRow<true> : SoftmaxGradientRow<false>;
  for (int64_t head = 0; head < x.heads; ++head) {
    for (int64_t first = 0; first < x.tokens; first += kAttentionQueries) {
      const int64_t rows = std::min(kAttentionQueries, x.tokens - first);
      const int64_t q_offset = first * x.qkv_stride + head * d;
      const int64_t out_offset = first * x.out_stride + head * d;
      PutAlong(queries, static_cast<const T*>(x.queries) + q_offset, x.qkv_stride, rows, d, scale);
      PutAlong(dout, static_cast<const T*>(gradients.dout) + out_offset, x.out_stride, rows, d, 1.0f);
      for (int64_t row = 0; row < rows; ++row) {
        const T* out = static_cast<const T*>(out_raw) + out_offset + row * x.out_stride;
        float product = 0;
#pragma omp simd reduction(+ : product)
        for (int64_t i = 0; i < d; ++i) product += dout[row * padded + i] * Widen(out[i]);
        dot[row] = product;
      }
      std::fill(dqueries, dqueries + rows * padded, 0.0f);
      ForKeyTiles(first, rows, window, stride, [&](const Tile& tile) {
        MultiplyByKeys(tile, queries, padded, keys_across, across_stride, d, weights);
        MultiplyByKeys(tile, dout, padded, values_across, across_stride, d, dscores);
        for (int64_t row = 0; row < rows; ++row) {
          softmax_gradient(weights + row * stride, dscores + row * stride, SeenBy(tile, row), stride,
                           lse[head * x.lse_stride + first + row], dot[row], x.softcap);
        }
        AddProductWithTokens(tile, dscores, keys, padded, dqueries);
        AddProductWithQueries(tile, dscores, queries, padded, dkeys);
        AddProductWithQueries(tile, weights, dout, padded, dvalues);
      });
      TakeAlong(static_cast<T*>(gradients.dqueries) + q_offset, x.qkv_stride, dqueries, rows, d, scale);
    }
  }
  TakeAlong(static_cast<T*>(gradients.dkeys), x.qkv_stride, dkeys, x.tokens, d, 1.0f);
  TakeAlong(static_cast<T*>(gradients.dvalues), x.qkv_stride, dvalues, x.tokens, d, 1.0f);
}
