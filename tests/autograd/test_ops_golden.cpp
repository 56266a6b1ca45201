// The general operations against PyTorch's values and gradients, from tests/golden/ops.txt (make_ops_golden.py there
// says what each case is and how the file is laid out).
#include <fstream>
#include <map>
#include <sstream>

#include "autograd/gradient_check.h"

namespace trencadis::test {
namespace {

using Variables = std::vector<Variable>;

const std::map<std::string, std::function<Variable(const Variables&)>> kCases = {
    {"add", [](const Variables& in) { return in[0] + in[1]; }},
    {"sub", [](const Variables& in) { return in[0] - in[1]; }},
    {"mul", [](const Variables& in) { return in[0] * in[1]; }},
    {"div", [](const Variables& in) { return in[0] / in[1]; }},
    {"scalar", [](const Variables& in) { return (2.5f - in[0] * 3.0f) / 4.0f + 1.0f / in[0]; }},
    {"square", [](const Variables& in) { return in[0] * in[0]; }},
    {"exp", [](const Variables& in) { return exp(in[0]); }},
    {"log", [](const Variables& in) { return log(in[0]); }},
    {"sqrt", [](const Variables& in) { return sqrt(in[0]); }},
    {"tanh", [](const Variables& in) { return tanh(in[0]); }},
    {"sigmoid", [](const Variables& in) { return sigmoid(in[0]); }},
    {"relu", [](const Variables& in) { return relu(in[0]); }},
    {"silu", [](const Variables& in) { return silu(in[0]); }},
    {"gelu", [](const Variables& in) { return gelu(in[0]); }},
    {"sum", [](const Variables& in) { return sum(in[0]); }},
    {"sum_0", [](const Variables& in) { return sum(in[0], 0); }},
    {"sum_1_keep", [](const Variables& in) { return sum(in[0], 1, true); }},
    {"mean", [](const Variables& in) { return mean(in[0]); }},
    {"mean_last", [](const Variables& in) { return mean(in[0], -1); }},
    {"max", [](const Variables& in) { return max(in[0]); }},
    {"max_1", [](const Variables& in) { return max(in[0], 1); }},
    {"max_last_keep", [](const Variables& in) { return max(in[0], -1, true); }},
    {"softmax_last", [](const Variables& in) { return softmax(in[0], -1); }},
    {"softmax_1", [](const Variables& in) { return softmax(in[0], 1); }},
    {"log_softmax_last", [](const Variables& in) { return log_softmax(in[0], -1); }},
    {"log_softmax_0", [](const Variables& in) { return log_softmax(in[0], 0); }},
    {"reshape",
     [](const Variables& in) {
       return reshape(in[0], {4, -1});
     }},
    {"transpose", [](const Variables& in) { return transpose(in[0], 0, -1); }},
    {"permute",
     [](const Variables& in) {
       return permute(in[0], {2, 0, 1});
     }},
    {"slice", [](const Variables& in) { return slice(in[0], 1, 1, -1); }},
    {"concat",
     [](const Variables& in) {
       return concat({in[0], in[1], in[0]}, 1);
     }},
    {"matmul", [](const Variables& in) { return matmul(in[0], in[1]); }},
    {"matmul_batch", [](const Variables& in) { return matmul(in[0], in[1]); }},
    {"matmul_weight", [](const Variables& in) { return matmul(in[0], in[1], false, true); }},
    {"matmul_both", [](const Variables& in) { return matmul(in[0], in[1], true, true); }},
    {"attention",
     [](const Variables& in) { return matmul(softmax(matmul(in[0], in[1], false, true) / 2.0f, -1), in[2]); }}};

struct Stored {
  Shape shape;
  std::vector<float> values;
};

TEST_CASE("PyTorch's values and gradients") {
  std::ifstream file(TRENCADIS_GOLDEN_DIR "/ops.txt");
  REQUIRE(file.good());
  std::string line, name;
  std::map<std::string, std::map<std::string, std::vector<Stored>>> cases;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) {
      name = line;
      continue;
    }
    std::istringstream head(line.substr(0, colon)), values(line.substr(colon + 1));
    std::string kind;
    head >> kind;
    Stored stored;
    for (int64_t size; head >> size;) stored.shape.push_back(size);
    for (float value; values >> value;) stored.values.push_back(value);
    cases[name][kind].push_back(stored);
  }
  REQUIRE(cases.size() == kCases.size());

  for (auto& [which, tensors] : cases) {
    CAPTURE(which);
    REQUIRE(kCases.count(which) == 1);
    Context context(make_cpu_backend({.poison = true}));
    Variables inputs;
    for (const Stored& in : tensors["in"]) inputs.emplace_back(Tensor::from(context, in.values, in.shape), true);
    const Variable out = kCases.at(which)(inputs);
    const Stored& expected = tensors["out"].at(0);
    CHECK(out.value().shape() == expected.shape);
    CHECK(relative_error(out.value().to_vector(), expected.values) < 2e-6);
    std::vector<float> seed;
    for (size_t i = 1; i <= expected.values.size(); ++i) seed.push_back(std::cos(static_cast<float>(i)));
    backward({Edge(out)}, {Tensor::from(context, seed, expected.shape)});
    REQUIRE(tensors["grad"].size() == inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      const Tensor gradient = inputs[i].take_gradient();
      CHECK(gradient.shape() == tensors["grad"][i].shape);
      CHECK(relative_error(gradient.to_vector(), tensors["grad"][i].values) < 2e-6);
    }
  }
}

}  // namespace
}  // namespace trencadis::test
