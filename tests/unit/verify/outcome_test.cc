#include "verify/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace trainctl::verify {
namespace {

using ::testing::HasSubstr;

// Two parameters of three numbers; gradients in the order of the inventory.
class OutcomeTest : public ::testing::Test {
 protected:
  OutcomeTest() : inventory_(2), reference_(1, 6) {
    inventory_[0].name = "large";
    inventory_[1].name = "small";
    for (model::Parameter& parameter : inventory_) parameter.numel = 3;
    Fill(reference_, {3, 0, 4, 0.3f, 0, 0.4f});
  }

  static void Fill(Outcome& outcome, const std::vector<double>& gradients) {
    std::copy(gradients.begin(), gradients.end(), outcome.gradients());
  }
  Comparison Off(float large, float small) const {
    Outcome outcome(1, 6);
    Fill(outcome, {3, large, 4, 0.3f, small, 0.4f});
    return Compare(outcome, reference_, 1, inventory_, {.loss = 1, .grad_norm = 1, .gradient = 1});
  }

  std::vector<model::Parameter> inventory_;
  Outcome reference_;
};

TEST_F(OutcomeTest, ErrorsAreRelativeToTheParametersOwnNorm) {
  const Comparison comparison = Off(0.5f, 0.1f);
  EXPECT_NEAR(comparison.parameters[0].error, 0.1, 1e-6);
  EXPECT_NEAR(comparison.parameters[1].error, 0.2, 1e-6);
  EXPECT_NEAR(comparison.gradient_error, std::sqrt((0.25 + 0.01) / 25.25), 1e-6);
}

TEST_F(OutcomeTest, RoundingMayBeHalfAsMuchAgainInAllAndMoreInAShortOne) {
  const Comparison alone = Off(0.5f, 0.1f);
  EXPECT_EQ(CompareRounding(DType::kBF16, Off(0.7f, 0.19f), alone, inventory_), "");
  EXPECT_THAT(CompareRounding(DType::kBF16, Off(0.8f, 0.1f), alone, inventory_),
              HasSubstr("gradients off by"));
  // Three elements: 2 (1 + 3 / sqrt(3)) times the error of 0.2.
  EXPECT_EQ(CompareRounding(DType::kBF16, Off(0.5f, 0.54f), alone, inventory_), "");
  EXPECT_THAT(CompareRounding(DType::kBF16, Off(0.5f, 0.55f), alone, inventory_),
              HasSubstr("gradient of small off by"));
  EXPECT_THAT(CompareRounding(DType::kBF16, Off(NAN, 0.1f), alone, inventory_), HasSubstr("off by nan"));
  // Where one process is nearly exact there is a floor.
  EXPECT_EQ(CompareRounding(DType::kBF16, Off(0.01f, 0.001f), Off(0, 0), inventory_), "");
}

}  // namespace
}  // namespace trainctl::verify
