// Attention by cuDNN: a graph of one node is described, cuDNN compiles a plan for it, and the plan runs any number of times
// on any pointers. Compiling takes from milliseconds to a second, so plans are kept by shape; so is cuDNN's refusal.
//
// The front end is a library of headers that turns such a description into calls of cuDNN's backend. Its errors are values;
// they become texts here (a refusal) or an Error (a plan that was accepted and then fails to run).
#include "runtime/cuda/cudnn/sdpa.h"

#include <cudnn_frontend.h>

#include <list>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "runtime/cuda/argument.h"
#include "runtime/cuda/handles.h"

namespace trencadis {

namespace {

namespace fe = cudnn_frontend;
using Array = std::shared_ptr<fe::graph::Tensor_attributes>;

#define CUDNN_CHECK(call)                                                                              \
  do {                                                                                                 \
    const cudnnStatus_t cudnn_status_ = (call);                                                        \
    CHECK(cudnn_status_ == CUDNN_STATUS_SUCCESS, "{}: {}", #call, cudnnGetErrorString(cudnn_status_)); \
  } while (0)

class CudnnHandle {
 public:
  explicit CudnnHandle(cudaStream_t stream) {
    CUDNN_CHECK(cudnnCreate(&handle_));
    CUDNN_CHECK(cudnnSetStream(handle_, stream));
  }
  ~CudnnHandle() { cudnnDestroy(handle_); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// The names by which a graph and its pointers are brought together.
enum Uid : int64_t { kQ = 1, kK, kV, kO, kLse, kDO, kDQ, kDK, kDV };
using Pointers = std::unordered_map<int64_t, void*>;

constexpr int64_t kAlignment = 16;  // bytes: cuDNN's kernels load as many at a time
constexpr size_t kMostPlans = 64;

// What a plan depends on. Scale is compiled in.
using Key = std::tuple<bool, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float>;
Key key_of(bool backward, const AttentionShape& s) {
  return {backward, s.B, s.T, s.H, s.H_kv, s.D, s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.scale};
}

struct Plan {
  Key key;
  std::shared_ptr<fe::graph::Graph> graph;
  int64_t workspace = 0;
  std::string refusal;  // of cuDNN; then there is no graph
};

// (B,heads,T,D) of heads that lie at every token: cuDNN takes any strides as long as D is dense.
Array heads(fe::graph::Graph& graph, const char* name, Uid uid, const AttentionShape& s, int64_t count,
            int64_t stride) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(uid)
                          .set_dim({s.B, count, s.T, s.D})
                          .set_stride({s.T * stride, s.D, stride, 1}));
}

void is_output(const Array& array, Uid uid, const AttentionShape& s, int64_t count, int64_t stride) {
  array->set_output(true).set_uid(uid).set_dim({s.B, count, s.T, s.D}).set_stride({s.T * stride, s.D, stride, 1});
}

// lse (B,H,T) is (B,H,T,1) to cuDNN.
void is_lse(fe::graph::Tensor_attributes& lse, const AttentionShape& s) {
  lse.set_uid(kLse).set_dim({s.B, s.H, s.T, 1}).set_stride({s.H * s.T, s.T, 1, 1}).set_data_type(fe::DataType_t::FLOAT);
}

std::shared_ptr<fe::graph::Graph> empty_graph() {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

// Query i sees keys 0 .. i: the diagonal starts at the top left, and nothing lies to the right of it.
template <typename Attributes>
Attributes causal(Attributes attributes, const char* name, const AttentionShape& s) {
  attributes.set_name(name)
      .set_attn_scale(s.scale)
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  return attributes;
}

std::shared_ptr<fe::graph::Graph> forward_graph(const AttentionShape& s) {
  auto graph = empty_graph();
  auto options = causal(fe::graph::SDPA_attributes(), "attention", s);
  options.set_generate_stats(true);
  auto [o, lse] = graph->sdpa(heads(*graph, "q", kQ, s, s.H, s.q_stride), heads(*graph, "k", kK, s, s.H_kv, s.k_stride),
                              heads(*graph, "v", kV, s, s.H_kv, s.v_stride), options);
  is_output(o, kO, s, s.H, s.o_stride);
  lse->set_output(true);
  is_lse(*lse, s);
  return graph;
}

std::shared_ptr<fe::graph::Graph> backward_graph(const AttentionShape& s) {
  auto graph = empty_graph();
  auto options = causal(fe::graph::SDPA_backward_attributes(), "attention_backward", s);
  options.set_deterministic_algorithm(true);
  fe::graph::Tensor_attributes lse;
  lse.set_name("lse");
  is_lse(lse, s);
  auto [dq, dk, dv] =
      graph->sdpa_backward(heads(*graph, "q", kQ, s, s.H, s.q_stride), heads(*graph, "k", kK, s, s.H_kv, s.k_stride),
                           heads(*graph, "v", kV, s, s.H_kv, s.v_stride), heads(*graph, "o", kO, s, s.H, s.o_stride),
                           heads(*graph, "d_o", kDO, s, s.H, s.o_stride), graph->tensor(lse), options);
  is_output(dq, kDQ, s, s.H, s.q_stride);
  is_output(dk, kDK, s, s.H_kv, s.k_stride);
  is_output(dv, kDV, s, s.H_kv, s.v_stride);
  return graph;
}

// What is known without asking cuDNN; empty if nothing speaks against it.
std::string obstacle(DType dtype, const AttentionShape& s, const Pointers& pointers) {
  if (dtype != DType::bf16) return fmt::format("elements are {}; cuDNN is used for bf16 only", name_of(dtype));
  if (s.dropout.probability > 0)
    return fmt::format("dropout {}: cuDNN draws other masks than this project", s.dropout.probability);
  constexpr int64_t kElements = kAlignment / static_cast<int64_t>(sizeof(uint16_t));
  for (int64_t n : {s.D, s.q_stride, s.k_stride, s.v_stride, s.o_stride})
    if (n % kElements != 0)
      return fmt::format("head size {} and strides q {}, k {}, v {}, o {} are not all multiples of {}", s.D, s.q_stride,
                         s.k_stride, s.v_stride, s.o_stride, kElements);
  for (const auto& [uid, pointer] : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % (uid == kLse ? sizeof(float) : kAlignment) != 0)
      return fmt::format("an array starts at {}, not at a multiple of {} bytes", pointer, kAlignment);
  return {};
}

void* writable(ConstView view) { return const_cast<void*>(view.data); }  // the front end knows no const

}  // namespace

struct CudnnAttention::State {
  State(cudaStream_t stream, Allocator& allocator) : handle(stream), scratch(allocator) {}

  // The plan for a shape, compiled on first use. The least recently used one makes room.
  const Plan& plan(bool backward, const AttentionShape& s) {
    const Key key = key_of(backward, s);
    for (auto it = plans.begin(); it != plans.end(); ++it)
      if (it->key == key) {
        plans.splice(plans.begin(), plans, it);
        return plans.front();
      }
    if (plans.size() == kMostPlans) plans.pop_back();
    Plan made{key, backward ? backward_graph(s) : forward_graph(s), 0, {}};
    fe::error_t error = made.graph->build(handle.get(), {fe::HeurMode_t::A});
    if (error.is_good()) error = made.graph->get_workspace_size(made.workspace);
    if (error.is_bad()) {
      made.graph.reset();
      made.refusal =
          fmt::format("cuDNN {} does not take this shape on this GPU: {}", cudnnGetVersion(), error.get_message());
    }
    plans.push_front(std::move(made));
    return plans.front();
  }

  std::string run(bool backward, DType dtype, const AttentionShape& s, Pointers& pointers) {
    if (std::string why = obstacle(dtype, s, pointers); !why.empty()) return why;
    if (s.B * s.T == 0) return {};  // no work, and no graph
    const Plan& chosen = plan(backward, s);
    if (!chosen.graph) return chosen.refusal;
    const Scratch<char> workspace(scratch, chosen.workspace);
    fe::error_t error = chosen.graph->execute(handle.get(), pointers, workspace.data());
    CHECK(error.is_good(), "{} by cuDNN: {}", backward ? "attention_backward" : "attention", error.get_message());
    return {};
  }

  CudnnHandle handle;
  Allocator& scratch;
  std::list<Plan> plans;  // most recently used first
};

bool CudnnAttention::built() { return true; }
std::string CudnnAttention::why_not_built() { return {}; }

CudnnAttention::CudnnAttention(cudaStream_t stream, Allocator& scratch)
    : state_(std::make_unique<State>(stream, scratch)) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::forward(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& s) {
  Pointers pointers = {{kO, o.data}, {kLse, lse.data}, {kQ, writable(q)}, {kK, writable(k)}, {kV, writable(v)}};
  return state_->run(false, q.dtype, s, pointers);
}

std::string CudnnAttention::backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                                     ConstView k, ConstView v, const AttentionShape& s) {
  Pointers pointers = {{kDQ, dq.data},       {kDK, dk.data},    {kDV, dv.data},
                       {kDO, writable(d_o)}, {kO, writable(o)}, {kLse, writable(lse)},
                       {kQ, writable(q)},    {kK, writable(k)}, {kV, writable(v)}};
  return state_->run(true, q.dtype, s, pointers);
}

}  // namespace trencadis
