// The arithmetic of each optimizer's update, for one element, in Real: fp32, or fp64 on CPUs. The CPU and
// CUDA tables share this file. It is included inside an unnamed namespace, after <array>, <cmath> and
// kernels.h, so that each instruction set has its own functions. The including file defines
//   TRAINCTL_RULE              the specifiers of a function that runs on the table's device
//   TRAINCTL_MUL_ADD(a, b, c)  a * b + c; on a GPU rounded once, independently of the compiler
//   TRAINCTL_ADD_MUL(c, a, b)  c + a * b; the same. A CPU's compiler may fuse either product or none
//
// A rule is constructed from UpdateOptions and whether the parameters decay. It is called for each element
// with the parameter, its gradient, the gradient's factor and kNumStates elements of state.

// Returns the factor of gradients that MasterKernels::clip_factor stores.
TRAINCTL_RULE float ClipFactor(double loss, double squares, double clip_norm) {
  if (!std::isfinite(loss) || !std::isfinite(squares)) return NAN;
  const double factor = clip_norm / (std::sqrt(squares) + 1e-6);
  return clip_norm > 0 && factor < 1 ? static_cast<float>(factor) : 1.0f;
}

// Chris Wellons' hash lowbias32, one of the least biased functions of this form that a search has found.
TRAINCTL_RULE uint32_t Mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Returns 16 random bits for a key and a number.
TRAINCTL_RULE uint32_t RoundingBits(uint32_t key, uint64_t number) {
  return Mix(static_cast<uint32_t>(number) + Mix(key + static_cast<uint32_t>(number >> 32))) >> 16;
}

// Rounds the fp32 with these bits to the bf16 above or below it, with probabilities that make the expected
// value exact. `chance` is 16 random bits. Values that a bf16 can represent do not change, and NaN stays NaN.
TRAINCTL_RULE uint32_t RoundByChance(uint32_t bits, uint32_t chance) {
  const uint32_t quiet = (bits >> 16) | 0x40;
  const uint32_t rounded = (bits + ((bits & 0x7f800000) == 0x7f800000 ? 0 : chance)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
}

// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), in torch.optim.AdamW's order of operations.
template <typename Real>
struct AdamWRule {
  using Element = Real;
  static constexpr int kNumStates = 2;
  Real decay, step, inverse_root2, beta1, beta2, eps;

  TRAINCTL_RULE AdamWRule(const UpdateOptions& o, bool decays)
      : decay(Real{1} - Real{o.lr} * (decays ? o.weight_decay : 0.0f)),
        step(Real{o.lr} / o.bias_correction1),
        inverse_root2(Real{1} / std::sqrt(Real{o.bias_correction2})),
        beta1(o.beta1),
        beta2(o.beta2),
        eps(o.eps) {}

  TRAINCTL_RULE void operator()(Real& master, Real gradient, Real factor, Real& exp_avg,
                                Real& exp_avg_sq) const {
    const Real g = gradient * factor;
    const Real m = TRAINCTL_MUL_ADD(beta1, exp_avg, (Real{1} - beta1) * g);
    const Real v = TRAINCTL_ADD_MUL(beta2 * exp_avg_sq, (Real{1} - beta2) * g, g);
    exp_avg = m;
    exp_avg_sq = v;
    master = master * decay - step * m / TRAINCTL_MUL_ADD(std::sqrt(v), inverse_root2, eps);
  }
};

// Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2): steps by the sign of an average of gradients, with
// decoupled weight decay.
template <typename Real>
struct LionRule {
  using Element = Real;
  static constexpr int kNumStates = 1;
  Real decay, lr, beta1, beta2;

  TRAINCTL_RULE LionRule(const UpdateOptions& o, bool decays)
      : decay(Real{1} - Real{o.lr} * (decays ? o.weight_decay : 0.0f)),
        lr(o.lr),
        beta1(o.beta1),
        beta2(o.beta2) {}

  TRAINCTL_RULE void operator()(Real& master, Real gradient, Real factor, Real& exp_avg) const {
    const Real g = gradient * factor;
    const Real average = TRAINCTL_MUL_ADD(beta1, exp_avg, (Real{1} - beta1) * g);
    const Real sign = static_cast<Real>((average > 0) - (average < 0));
    exp_avg = TRAINCTL_MUL_ADD(beta2, exp_avg, (Real{1} - beta2) * g);
    master = TRAINCTL_MUL_ADD(master, decay, -lr * sign);
  }
};

// SGD like torch.optim.SGD with momentum, without dampening or Nesterov momentum. Weight decay is added to
// the gradient.
template <typename Real>
struct SgdRule {
  using Element = Real;
  static constexpr int kNumStates = 1;
  Real lr, momentum, weight_decay;

  TRAINCTL_RULE SgdRule(const UpdateOptions& o, bool decays)
      : lr(o.lr), momentum(o.momentum), weight_decay(decays ? o.weight_decay : 0.0f) {}

  TRAINCTL_RULE void operator()(Real& master, Real gradient, Real factor, Real& momentum_buffer) const {
    const Real g = TRAINCTL_MUL_ADD(weight_decay, master, gradient * factor);
    const Real velocity = TRAINCTL_MUL_ADD(momentum, momentum_buffer, g);
    momentum_buffer = velocity;
    master = TRAINCTL_MUL_ADD(-lr, velocity, master);
  }
};

// Returns the table's functions in the order of UpdateRule. Kernel<Rule>::Run is the function of a rule.
template <template <typename> typename Kernel, typename Real>
constexpr std::array<UpdateFunction, kNumUpdateRules> AllUpdates() {
  return {Kernel<AdamWRule<Real>>::Run, Kernel<LionRule<Real>>::Run, Kernel<SgdRule<Real>>::Run};
}
