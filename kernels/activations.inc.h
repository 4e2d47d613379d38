// The arithmetic of the activation functions, in Real: fp32, or fp64 on CPUs. The CPU and CUDA tables share
// this file. It is included inside an unnamed namespace, after kernels.h and functions Exp(Real). The
// including file defines
//   TRAINCTL_ACTIVATION  the specifiers of a function that runs on the table's device

// Returns P(x), the probability that a standard normal value is below x. P(x) = 1 - Q(x), and P(x) = Q(-x)
// for negative x, with Q(a) = t p(t) e^(-a^2 / 2) and t = 1 / (1 + 0.3 a). The coefficients of p were fitted
// to the relative error of Q, which is at most 1.4e-7 up to a = 13. Beyond that, Q is below 1e-37.
TRAINCTL_ACTIVATION float NormalBelow(float x) {
  const float a = x < 0.0f ? -x : x;
  const float t = 1.0f / (1.0f + 0.3f * a);
  float p = 0.03664988946f;
  p = p * t - 0.1611761927f;
  p = p * t + 0.2130432014f;
  p = p * t - 0.05969779766f;
  p = p * t + 0.1316696142f;
  p = p * t + 0.09899286856f;
  p = p * t + 0.1208983674f;
  p = p * t + 0.119620056f;
  const float above = t * p * Exp(-0.5f * a * a);
  return x < 0.0f ? above : 1.0f - above;
}

// The value and the derivative of an activation at one x.
template <typename Real>
struct ValueAndSlope {
  Real value, slope;
};

constexpr double kSqrtOf2OverPi = 0.79788456080286535588;
constexpr double kCubicOfGelu = 0.044715;

// Clamps x to [-13, 13]. Outside this range the slopes of both forms of GELU are 0 or 1 in any precision, and
// their terms would overflow.
template <typename Real>
TRAINCTL_ACTIVATION Real WithinGelu(Real x) {
  const Real above = x < Real{-13} ? Real{-13} : x;
  return above > Real{13} ? Real{13} : above;
}

// Returns the sigmoid of 2 sqrt(2 / pi) (x + 0.044715 x^3). It equals (1 + tanh(sqrt(2 / pi) (x + 0.044715
// x^3))) / 2, without the cancellation of that form.
template <typename Real>
TRAINCTL_ACTIVATION Real SigmoidOfGelu(Real x) {
  const Real u =
      static_cast<Real>(2 * kSqrtOf2OverPi) * x * (Real{1} + static_cast<Real>(kCubicOfGelu) * x * x);
  return Real{1} / (Real{1} + Exp(-u));
}

// Returns max(x, 0), or NaN if x is NaN.
template <typename Real>
TRAINCTL_ACTIVATION Real Positive(Real x) {
  return x < Real{0} ? Real{0} : x;
}

template <Activation kActivation, typename Real>
TRAINCTL_ACTIVATION Real Activate(Real x) {
  if constexpr (kActivation == Activation::kSiLU) return x / (Real{1} + Exp(-x));
  if constexpr (kActivation == Activation::kGelu) return x * NormalBelow(x);
  if constexpr (kActivation == Activation::kGeluTanh) return x * SigmoidOfGelu(x);
  if constexpr (kActivation == Activation::kRelu) return Positive(x);
  if constexpr (kActivation == Activation::kReluSquared) return Positive(x) * Positive(x);
}

template <Activation kActivation, typename Real>
TRAINCTL_ACTIVATION ValueAndSlope<Real> ActivateWithSlope(Real x) {
  if constexpr (kActivation == Activation::kSiLU) {
    const Real sigmoid = Real{1} / (Real{1} + Exp(-x));
    return {x * sigmoid, sigmoid * (Real{1} + x * (Real{1} - sigmoid))};
  }
  if constexpr (kActivation == Activation::kGelu) {
    const Real within = WithinGelu(x), below = NormalBelow(x);
    const Real density = static_cast<Real>(kSqrtOf2OverPi / 2) * Exp(Real{-0.5} * within * within);
    return {x * below, below + within * density};
  }
  if constexpr (kActivation == Activation::kGeluTanh) {
    const Real within = WithinGelu(x), sigmoid = SigmoidOfGelu(x);
    const Real du = static_cast<Real>(2 * kSqrtOf2OverPi) *
                    (Real{1} + static_cast<Real>(3 * kCubicOfGelu) * within * within);
    return {x * sigmoid, sigmoid + within * sigmoid * (Real{1} - sigmoid) * du};
  }
  if constexpr (kActivation == Activation::kRelu) return {Positive(x), x <= Real{0} ? Real{0} : Real{1}};
  if constexpr (kActivation == Activation::kReluSquared)
    return {Positive(x) * Positive(x), Real{2} * Positive(x)};
}

template <Activation kActivation>
struct ActivationConstant {
  static constexpr Activation kValue = kActivation;
};

// Calls `function` with the activation as a compile-time constant, so that loops contain no branch.
template <typename Function>
TRAINCTL_ACTIVATION void WithActivation(Activation activation, const Function& function) {
  switch (activation) {
    case Activation::kSiLU:
      return function(ActivationConstant<Activation::kSiLU>());
    case Activation::kGelu:
      return function(ActivationConstant<Activation::kGelu>());
    case Activation::kGeluTanh:
      return function(ActivationConstant<Activation::kGeluTanh>());
    case Activation::kRelu:
      return function(ActivationConstant<Activation::kRelu>());
    case Activation::kReluSquared:
      return function(ActivationConstant<Activation::kReluSquared>());
  }
}
