// Attention on the CPU: kernels/attention.h for each document and head of keys and values, dealt to the
// threads. Who computes what does not change a bit.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "base/status.h"
#include "device/aten.h"
#include "kernels/kernels.h"
#include "model/operators.h"
#include "nn/attention.h"
#include "nn/attention_views.h"

namespace trainctl::nn {
namespace {

struct Task {
  int64_t first_token = 0;  // of the document
  int64_t tokens = 0;
  int64_t kv_head = 0;
  int64_t first_query = 0;  // within the document
  int64_t num_queries = 0;
  // Twice the number of scores, approximately.
  int64_t scores(int64_t window) const {
    const int64_t keys = 2 * first_query + num_queries;
    return num_queries * (window > 0 ? std::min(keys, 2 * window) : keys);
  }
};

// Each document and head whole, or, where there are too few for the threads, cut between tiles of queries.
std::vector<Task> CutTasks(const AttentionShape& shape, const int32_t* document, bool cut_queries) {
  std::vector<Task> whole;
  for (const Piece& piece : CutDocuments(shape, document)) {
    for (int64_t sequence = 0; sequence < piece.num_sequences; ++sequence) {
      const int64_t first_token = (piece.first_sequence + sequence) * shape.seq_len + piece.begin;
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        whole.push_back({first_token, piece.count, head, 0, piece.count});
      }
    }
  }
  const int64_t cuts =
      cut_queries ? model::AttentionCuts(static_cast<int64_t>(whole.size()), at::get_num_threads()) : 1;
  if (cuts == 1) return whole;
  std::vector<Task> tasks;
  for (const Task& task : whole) {
    const int64_t tiles = (task.tokens + kernels::kAttentionQueries - 1) / kernels::kAttentionQueries;
    const int64_t queries = (tiles + cuts - 1) / cuts * kernels::kAttentionQueries;
    for (int64_t first = 0; first < task.tokens; first += queries) {
      tasks.push_back(task);
      tasks.back().first_query = first;
      tasks.back().num_queries = std::min(queries, task.tokens - first);
    }
  }
  return tasks;
}

// Calls function(task, workspace of its thread) for all, the largest first.
template <typename Function>
void ForTasks(std::vector<Task> tasks, const AttentionShape& shape, bool backward, const Function& function) {
  std::stable_sort(tasks.begin(), tasks.end(), [&](const Task& a, const Task& b) {
    return a.scores(shape.window) > b.scores(shape.window);
  });
  const int64_t threads = at::get_num_threads();
  const int64_t each = kernels::AttentionWorkspace(shape.seq_len, shape.head_dim, backward);
  const at::Tensor workspace = at::empty({threads * each}, at::kFloat);
  float* const begin = workspace.data_ptr<float>();
  std::atomic<size_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    // One thread may be given several numbers; the first of them does for all.
    for (size_t i = next++; first < last && i < tasks.size(); i = next++)
      function(tasks[i], begin + first * each);
  });
}

// Addresses elements of tensors of one type, in rows of tokens.
class Heads {
 public:
  Heads(const AttentionShape& shape, const at::Tensor& qkv) : shape_(shape), bytes_(qkv.element_size()) {
    TRAINCTL_CHECK(qkv.is_contiguous());
  }

  int64_t group() const { return shape_.heads / shape_.kv_heads; }
  int64_t qkv_stride() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  int64_t out_stride() const { return shape_.heads * shape_.head_dim; }

  char* Queries(const at::Tensor& qkv, const Task& task) const {
    return At(qkv, task, qkv_stride(), task.kv_head * group());
  }
  char* Keys(const at::Tensor& qkv, const Task& task) const {
    return At(qkv, task, qkv_stride(), shape_.heads + task.kv_head);
  }
  char* Values(const at::Tensor& qkv, const Task& task) const {
    return At(qkv, task, qkv_stride(), shape_.heads + shape_.kv_heads + task.kv_head);
  }
  char* Out(const at::Tensor& out, const Task& task) const {
    return At(out, task, out_stride(), task.kv_head * group());
  }
  float* Lse(const at::Tensor& lse, const Task& task) const {
    return lse.data_ptr<float>() + task.kv_head * group() * lse_stride() + task.first_token;
  }
  int64_t lse_stride() const { return shape_.batch * shape_.seq_len; }

  kernels::AttentionHeads Of(const at::Tensor& qkv, const Task& task) const {
    return {.tokens = task.tokens,
            .heads = group(),
            .head_dim = shape_.head_dim,
            .qkv_stride = qkv_stride(),
            .out_stride = out_stride(),
            .lse_stride = lse_stride(),
            .queries = Queries(qkv, task),
            .keys = Keys(qkv, task),
            .values = Values(qkv, task),
            .scale = static_cast<float>(shape_.scale),
            .window = shape_.window,
            .softcap = static_cast<float>(shape_.softcap)};
  }

 private:
  char* At(const at::Tensor& x, const Task& task, int64_t stride, int64_t head) const {
    return static_cast<char*>(x.data_ptr()) + (task.first_token * stride + head * shape_.head_dim) * bytes_;
  }

  const AttentionShape& shape_;
  int64_t bytes_;
};

const kernels::TypedKernels& KernelsFor(const at::Tensor& qkv) {
  return kernels::Cpu().For(qkv.scalar_type() == at::kBFloat16 ? DType::kBF16 : DType::kF32);
}

}  // namespace

bool CpuServes(const at::Tensor& qkv) { return qkv.is_cpu() && qkv.scalar_type() != at::kDouble; }

void CpuAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                         at::Tensor& out, at::Tensor& lse) {
  const Heads heads(shape, qkv);
  ForTasks(CutTasks(shape, view.document, /*cut_queries=*/true), shape, /*backward=*/false,
           [&](const Task& task, float* workspace) {
             KernelsFor(qkv).attention(heads.Of(qkv, task), heads.Out(out, task), heads.Lse(lse, task),
                                       task.first_query, task.num_queries, workspace);
           });
}

void CpuAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                          const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                          at::Tensor& dqkv) {
  const Heads heads(shape, qkv);
  ForTasks(CutTasks(shape, view.document, /*cut_queries=*/false), shape, /*backward=*/true,
           [&](const Task& task, float* workspace) {
             const kernels::AttentionGradients gradients = {.dout = heads.Out(dout, task),
                                                            .dqueries = heads.Queries(dqkv, task),
                                                            .dkeys = heads.Keys(dqkv, task),
                                                            .dvalues = heads.Values(dqkv, task)};
             KernelsFor(qkv).attention_backward(heads.Of(qkv, task), heads.Out(out, task),
                                                heads.Lse(lse, task), gradients, workspace);
           });
}

}  // namespace trainctl::nn
