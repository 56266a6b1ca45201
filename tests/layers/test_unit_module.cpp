// UnitModule: which parameters make a unit, what an observer hears of its uses, and that nothing of it changes a value.
#include "autograd/region_log.h"
#include "layers/layers.h"
#include "layers/unit_module.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

struct Recorder : RegionLog {
  std::string line(const char* moment, const RegionUse& use) const override {
    return fmt::format("{} {} {}{}", moment, use.unit, use.name, use.backward_follows ? ", backward next" : "");
  }
};

// in -> middle -> out, where in and out are one unit with two uses, as the two ends of a GPT are.
struct Sandwich : UnitModule {
  static constexpr int64_t kRows = 5, kIn = 7, kHidden = 6;
  Linear in{kIn, kHidden, Initialiser::normal(0.5f)}, middle{kHidden, kHidden, Initialiser::normal(0.5f)},
      out{kHidden, kIn, Initialiser::normal(0.5f)};
  bool recompute = false;
  mutable int middle_runs = 0;

  Sandwich() {
    add_child("in", in);
    add_child("out", out);
    add_unit("ends", {&in, &out});
    add_unit("middle", middle);
  }

  Variable forward(const Tensor& x) const {
    RegionUse first = use_of(in);
    first.name = "the first end";
    // x is no variable: the region has no input.
    Variable y = run(first, Variable(), [this, x](const Variable& none) {
      CHECK_FALSE(none.defined());
      return in.forward(Variable(x));
    });
    y = run(
        use_of(middle), y,
        [this](const Variable& v) {
          ++middle_runs;
          return bias_gelu(middle.product(v), middle.bias.variable);
        },
        recompute);
    return run(last_use_of(out), y, [this](const Variable& v) { return out.forward(v); });
  }

  // The same without units.
  Variable plain(const Tensor& x) const {
    return out.forward(bias_gelu(middle.product(in.forward(Variable(x))), middle.bias.variable));
  }
};

struct Outcome {
  std::vector<float> logits;
  std::vector<std::vector<float>> gradients;
  bool operator==(const Outcome&) const = default;
};

Outcome run_once(Context& context, Sandwich& model, bool plain = false) {
  const Tensor x = Tensor::from(context, random_floats(Sandwich::kRows * Sandwich::kIn, 1), {5, 7});
  const Tensor targets = Tensor::from(context, random_ints(Sandwich::kRows, 2, Sandwich::kIn), {5});
  const Variable logits = plain ? model.plain(x) : model.forward(x);
  Outcome outcome{logits.value().to_vector(), {}};  // before backward, which consumes them
  backward(softmax_cross_entropy(logits, targets));
  for (Parameter* p : model.parameters()) outcome.gradients.push_back(p->variable.take_gradient().to_vector());
  return outcome;
}

TEST_CASE("units in the order in which they were added, their parameters in that of their parts, all named") {
  Sandwich model;
  Log listed;
  for (const Unit& unit : model.units())
    for (const Parameter* p : unit.parameters) listed.push_back(unit.name + ": " + p->name);
  CHECK(listed == Log{"ends: in.weight", "ends: in.bias", "ends: out.weight", "ends: out.bias", "middle: middle.weight",
                      "middle: middle.bias"});
}

TEST_CASE("a model that has a prefix keeps it, and its units keep the names that they were given") {
  Sandwich model;
  model.assign_names("student");
  CHECK(model.units()[1].parameters[0]->name == "student.middle.weight");
  CHECK(model.units()[1].name == "middle");
}

TEST_CASE("an observer hears every use in its order, and none once it has gone") {
  Context context(make_cpu_backend({.poison = true}));
  Sandwich model;
  model.units();
  allocate_parameters(model, context, 3);
  Recorder recorder;
  model.set_observer(&recorder);
  run_once(context, model);
  CHECK(recorder.log ==
        Log{"before_forward 0 the first end", "after_forward 0 the first end", "before_forward 1 middle",
            "after_forward 1 middle", "before_forward 0 ends, backward next", "after_forward 0 ends, backward next",
            "before_backward 0 ends, backward next", "after_backward 0 ends, backward next", "before_backward 1 middle",
            "after_backward 1 middle", "before_backward 0 the first end", "after_backward 0 the first end"});
  recorder.log.clear();
  model.set_observer(nullptr);
  run_once(context, model);
  CHECK(recorder.log.empty());
}

TEST_CASE("units change no bit of logits and gradients, recomputed or not") {
  Context context(make_cpu_backend({.poison = true}));
  Sandwich model;
  model.units();
  allocate_parameters(model, context, 3);
  const Outcome plain = run_once(context, model, /*plain=*/true);
  CHECK(model.middle_runs == 0);
  CHECK(run_once(context, model) == plain);
  CHECK(model.middle_runs == 1);
  model.recompute = true;
  CHECK(run_once(context, model) == plain);
  CHECK(model.middle_runs == 3);  // in forward, and again in backward
}

TEST_CASE("run(part, x) is part.forward(x) as a use of its unit") {
  Context context(make_cpu_backend());
  struct One : UnitModule {
    Linear layer{3, 2, Initialiser::normal(1)};
    One() { add_unit("layer", layer); }
    Variable forward(const Variable& x) const { return run(layer, x); }
  } model;
  model.units();
  allocate_parameters(model, context, 4);
  Recorder recorder;
  model.set_observer(&recorder);
  const Variable x(Tensor::from(context, random_floats(6, 5), {2, 3}));
  CHECK(model.forward(x).value().to_vector() == model.layer.forward(x).value().to_vector());
  CHECK(recorder.log == Log{"before_forward 0 layer", "after_forward 0 layer"});
}

TEST_CASE("a parameter in no unit or in two, and the use of what is no unit, are errors that name it") {
  struct Model : UnitModule {
    Linear a{2, 2, Initialiser::normal(1)}, b{2, 2, Initialiser::normal(1)};
    Model(bool twice) {
      add_unit("first", a);
      add_child("b", b);
      if (twice) add_unit("both", {&b, &a});
    }
    using UnitModule::use_of;
  };
  Model lacking(false), twice(true);
  CHECK_THROWS_WITH(lacking.units(), doctest::Contains("b.weight is in no unit; add its module by add_unit()"));
  CHECK_THROWS_WITH(twice.units(), doctest::Contains("first.weight is in the units 'first' and 'both'"));
  CHECK_THROWS_WITH(lacking.use_of(lacking.b), doctest::Contains("module 'b' is none of the 1 units of the model"));
}

}  // namespace
}  // namespace trencadis::test
