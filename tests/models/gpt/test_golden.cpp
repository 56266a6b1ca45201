// The GPT against PyTorch in double: logits, loss, every gradient, and three steps of clipped AdamW; tied and untied,
// with ignored targets.
//
// Tolerances. f32 carries 2^-24 = 6e-8 per rounding; a number of this network passes some tens of roundings, which add
// up like a random walk: 1e-6 of a tensor's largest is what is seen, 1e-5 is promise 1's bound. An error of a formula
// (a missing factor, a term of a gradient) is far larger. Gradients are compared with their own tensor's largest; that
// is not possible where the true gradient is zero: the key third of c_attn.bias, as softmax does not see what is added
// to all scores of a row. What is computed there is the remainder of numbers as large as the model's gradients, so
// those are its measure.
#include "models/gpt/golden.h"
#include "optim/optimizer.h"

namespace trencadis::test {
namespace {

using Floats = std::vector<float>;

struct Trained {
  explicit Trained(const Golden& g) : golden(g), model(golden.config()) { golden.load(model, context); }

  // Sum of the losses over valid targets, with backward from 1/(B T) as the engine has it.
  float backward_of_batch() {
    const Tensor ids = golden.batch(context, "ids"), targets = golden.batch(context, "targets");
    const Variable loss = model.loss(ids, targets, {.training = true});
    backward(loss, 1.0f / static_cast<float>(ids.size()));
    return loss.value().item();
  }
  // From gradients of sum / (B T) to those of the mean over valid targets.
  float mean_factor() const {
    const auto rows = golden.json.at("ids").size() * golden.json.at("ids")[0].size();
    return static_cast<float>(static_cast<double>(rows) / golden.json.at("valid_targets").get<double>());
  }

  const Golden& golden;
  Context context{make_cpu_backend({.threads = 2, .poison = true})};
  GPT model;
};

TEST_CASE("logits, loss and gradients") {
  for (const char* name : {"tied", "untied"}) {
    CAPTURE(name);
    const Golden golden(name);
    Trained trained(golden);
    Context& context = trained.context;
    const double valid = golden.json.at("valid_targets");
    REQUIRE(valid < static_cast<double>(golden.batch(context, "ids").size()));  // some are ignored
    {
      const NoGrad no_grad;
      const Variable logits = trained.model.logits(golden.batch(context, "ids"), {});
      CHECK(logits.value().shape() == golden.shape("logits"));
      CHECK(relative_error(logits.value().to_vector(), golden.values("logits")) < 1e-5);

      const Tensor totals = Tensor::zeros(context, {kLossWords}, DType::i64);
      trained.model.loss(golden.batch(context, "ids"), golden.batch(context, "targets"), {}, totals);
      const int64_t* words = totals.data<int64_t>();
      CHECK(words[kLossTokens] == golden.json.at("valid_targets").get<int64_t>());
      CHECK(words[kLossNonFinite] == 0);
      CHECK(static_cast<double>(words[kLossFixedPoint]) * kLossUnit / valid ==
            doctest::Approx(golden.json.at("loss").get<double>()).epsilon(1e-6));
    }

    CHECK(trained.backward_of_batch() / valid == doctest::Approx(golden.json.at("loss").get<double>()).epsilon(1e-6));
    double largest_of_model = 0, squares = 0;
    for (Parameter* p : trained.model.parameters())
      largest_of_model = std::max(largest_of_model, largest(golden.values("grad/" + p->name)));
    for (Parameter* p : trained.model.parameters()) {
      CAPTURE(p->name);
      const Floats expected = golden.values("grad/" + p->name);
      Floats got = p->variable.gradient().to_vector();
      for (float& g : got) {
        g *= trained.mean_factor();
        squares += static_cast<double>(g) * g;
      }
      CHECK(relative_error(got, expected) < 1e-5);
      if (p->name.ends_with("c_attn.bias")) {
        const auto key = static_cast<std::ptrdiff_t>(got.size() / 3);
        CHECK(largest(Floats(expected.begin() + key, expected.begin() + 2 * key)) < 1e-12);
        CHECK(largest(Floats(got.begin() + key, got.begin() + 2 * key)) < 1e-6 * largest_of_model);
      }
    }
    CHECK(std::sqrt(squares) == doctest::Approx(golden.json.at("grad_norm").get<double>()).epsilon(1e-6));
  }
}

// Adam divides a gradient by its own size, so the relative error of an element's gradient becomes an error of its step,
// in units of the learning rate. Elements whose first gradient is at least 1 % of their tensor's largest know it to
// 1e-5 / 1 % = 1e-3, each step; the noise of the others may turn a step around, but never makes it longer than Adam's
// bound, about the rate itself. So the first are compared with 1e-3 of all rates' sum, the others with twice the sum.
TEST_CASE("parameters after three steps of clipped AdamW") {
  for (const char* name : {"tied", "untied"}) {
    CAPTURE(name);
    const Golden golden(name);
    Trained trained(golden);
    Context& context = trained.context;
    const nlohmann::json& settings = golden.json.at("optimizer");
    const auto optimizer = make_adamw({.beta1 = settings.at("beta1"),
                                       .beta2 = settings.at("beta2"),
                                       .eps = settings.at("eps"),
                                       .weight_decay = settings.at("weight_decay")});
    std::vector<Tensor> states;
    for (const Parameter* p : trained.model.parameters())
      for (int i = 0; i < optimizer->state_count(); ++i) states.push_back(Tensor::zeros(context, {p->size()}));

    double rates = 0;
    int64_t t = 0;
    for (const nlohmann::json& step : golden.json.at("steps")) {
      const double valid = golden.json.at("valid_targets");
      CHECK(trained.backward_of_batch() / valid == doctest::Approx(step.at("loss").get<double>()).epsilon(1e-5));
      double squares = 0;
      for (Parameter* p : trained.model.parameters())
        for (const float g : p->variable.gradient().to_vector()) squares += static_cast<double>(g) * g;
      const double norm = std::sqrt(squares) * trained.mean_factor();
      CHECK(norm == doctest::Approx(step.at("grad_norm").get<double>()).epsilon(1e-4));

      std::vector<ParamSlice> slices;
      std::vector<Tensor> gradients;
      for (Parameter* p : trained.model.parameters()) {
        gradients.push_back(p->variable.take_gradient());
        ParamSlice slice;
        slice.param = slice.master = p->variable.value();
        slice.gradient = gradients.back();
        slice.states = {states[2 * slices.size()], states[2 * slices.size() + 1]};
        slice.logical_shape = p->shape;
        slices.push_back(slice);
      }
      StepInfo info = {.lr = step.at("lr"), .t = ++t};
      const double clip = std::min(1.0, settings.at("grad_clip").get<double>() / norm);
      CHECK(clip < 1);
      info.grad_scale = static_cast<float>(trained.mean_factor() * clip);
      optimizer->step(slices, info, context.kernels());
      rates += info.lr;
    }
    for (const Parameter* p : trained.model.parameters()) {
      CAPTURE(p->name);
      const Floats after = p->variable.value().to_vector(), expected = golden.values("after/" + p->name);
      const Floats before = golden.values("param/" + p->name), gradient = golden.values("grad/" + p->name);
      const double clear = 0.01 * largest(gradient);
      double moved = 0;
      for (size_t i = 0; i < after.size(); ++i) {
        CAPTURE(i);
        CAPTURE(gradient[i]);
        const double error = std::abs(static_cast<double>(after[i]) - expected[i]);
        REQUIRE(error < (std::abs(gradient[i]) >= clear ? 1e-3 : 2.0) * rates);
        moved = std::max(moved, std::abs(static_cast<double>(after[i]) - before[i]));
      }
      CHECK(moved > 0.1 * rates);  // the comparison is not one of nothing with nothing
    }
  }
}

}  // namespace
}  // namespace trencadis::test
