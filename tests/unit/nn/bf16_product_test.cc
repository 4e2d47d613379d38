#include "nn/bf16_product.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "device/aten.h"

namespace trainctl::nn {
namespace {

struct Shape {
  int64_t rows, inner, columns;
};

// A matrix by rows, or the same one by columns.
at::Tensor Laid(const at::Tensor& matrix, bool by_columns) {
  return by_columns ? matrix.t().contiguous().t() : matrix;
}

// Products of bf16 values are exact in fp64: what comes out is that sum, rounded once (half of 2^-8 of it),
// and what fp32 loses of a sum of k products.
TEST(Bf16Product, IsTheSumOfItsProductsRoundedOnce) {
  at::manual_seed(3);
  for (const Shape& shape : {Shape{1, 1, 1}, {3, 700, 5}, {257, 255, 256}, {300, 513, 70}, {40, 256, 600}}) {
    const at::Tensor a = at::randn({shape.rows, shape.inner}).to(at::kBFloat16);
    const at::Tensor b = at::randn({shape.inner, shape.columns}).to(at::kBFloat16);
    const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const at::Tensor sizes = at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs());
    const at::Tensor most = exact.abs() / 256 + sizes * 1e-6;
    at::Tensor first;
    for (const bool a_by_columns : {false, true}) {
      for (const bool b_by_columns : {false, true}) {
        for (const int threads : {1, 3}) {
          at::set_num_threads(threads);
          // Part of a wider one, as pieces of logits are.
          at::Tensor out =
              at::full({shape.rows + 1, shape.columns}, 7, at::kBFloat16).narrow(0, 0, shape.rows);
          MultiplyInTiles(out, Laid(a, a_by_columns), Laid(b, b_by_columns));
          EXPECT_TRUE(((out.to(at::kDouble) - exact).abs() <= most).all().item<bool>())
              << shape.rows << " " << shape.inner << " " << shape.columns << " " << a_by_columns
              << b_by_columns;
          if (threads == 1) {
            first = out.clone();
          } else {
            EXPECT_TRUE(at::equal(out, first)) << "not the same bits with " << threads << " threads";
          }
        }
      }
    }
  }
  at::set_num_threads(1);
}

}  // namespace
}  // namespace trainctl::nn
