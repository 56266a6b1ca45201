// Tensor, Storage, MemoryTracker: shapes, views, and memory that is released and comes back.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

// An allocator and backend that hand out addresses and no memory: for arithmetic on sizes no machine has.
class AddressOnlyBackend final : public Backend, public Allocator {
 public:
  Device device() const override { return {}; }
  Allocator& allocator() override { return *this; }
  Stream& compute_stream() override { throw Error("no stream"); }
  std::unique_ptr<Stream> make_stream(std::string) override { throw Error("no stream"); }
  Kernels& kernels() override { throw Error("no kernels"); }
  std::unique_ptr<Kernels> make_kernels(Stream&) override { throw Error("no kernels"); }
  void copy_to_host(void*, ConstView) override { throw Error("no memory"); }
  void copy_from_host(View, const void*) override { throw Error("no memory"); }
  void* allocate(int64_t) override { return reinterpret_cast<void*>(kAddress); }
  void free(void*, int64_t) override {}

  static constexpr uintptr_t kAddress = uintptr_t{1} << 40;
};

}  // namespace

TEST_CASE("a tensor knows its shape") {
  Context context(make_cpu_backend());
  const Tensor t = Tensor::empty(context, {2, 3, 4});
  CHECK(t.size() == 24);
  CHECK(t.bytes() == 96);
  CHECK(t.dim(0) == 2);
  CHECK(t.dim(-1) == 4);
  CHECK(to_string(t.shape()) == "(2, 3, 4)");
  CHECK(to_string({}) == "()");
  CHECK(to_string({5}) == "(5)");
  expect_error([&] { t.dim(3); }, "(2, 3, 4)");
  expect_error([&] { t.dim(-4); }, "(2, 3, 4)");
  CHECK_FALSE(Tensor().defined());
  CHECK(Tensor::empty(context, {}).size() == 1);
  CHECK(Tensor::empty(context, {3, 0}).size() == 0);
  CHECK(Tensor::empty(context, {3}, DType::bf16).bytes() == 6);
}

TEST_CASE("values go in and come out") {
  Context context(make_cpu_backend({.poison = true}));
  const Tensor t = Tensor::from(context, std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(t.to_vector() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(t.flat_slice(2, 3).to_vector() == std::vector<float>{3, 4, 5});
  CHECK(t.flat_slice(4, 1).item() == 5);
  CHECK(t.reshape({3, 2}).data<float>() == t.data<float>());
  CHECK(Tensor::zeros(context, {3}).to_vector() == std::vector<float>{0, 0, 0});
  const Tensor ids = Tensor::from(context, std::vector<int32_t>{7, -1}, {2});
  CHECK(ids.to_ints() == std::vector<int32_t>{7, -1});
  expect_error([&] { ids.to_vector(); }, "i32");
  expect_error([&] { t.to_ints(); }, "f32");
  expect_error([&] { t.item(); }, "(2, 3)");
  expect_error([&] { t.reshape({4, 2}); }, "(4, 2)");
  expect_error([&] { t.flat_slice(4, 3); }, "[4, 7)");
  expect_error([&] { Tensor::from(context, std::vector<float>{1, 2}, {3}); }, "(3)");
  expect_error([&] { Tensor(t.storage(), 1, {2, 3}); }, "does not fit");
  expect_error([&] { t.view().as<bf16>(); }, "bf16");
}

TEST_CASE("views share memory, and stay valid while it goes away and comes back") {
  Context context(make_cpu_backend({.poison = true}));
  auto storage = Storage::create_released(context, 10 * 4, MemoryCategory::parameter, "unit h.3");
  storage->set_parts({{0, "h.3.attn.weight"}, {16, "h.3.attn.bias"}});
  const Tensor weight(storage, 0, {2, 2}), bias(storage, 4, {3});
  CHECK_FALSE(storage->materialised());
  expect_error([&] { weight.view(); }, "h.3.attn.weight");
  expect_error([&] { bias.view(); }, "h.3.attn.bias");
  expect_error([&] { bias.to_vector(); }, "unit h.3");

  storage->materialise();
  storage->materialise();  // twice is once
  context.kernels().fill(weight, 2);
  context.kernels().fill(bias, 3);
  CHECK(Tensor(storage, 3, {2}).to_vector() == std::vector<float>{2, 3});
  CHECK(context.memory().live()[static_cast<int>(MemoryCategory::parameter)] == 40);

  storage->release();
  storage->release();
  CHECK(context.memory().live_total() == 0);
  expect_error([&] { bias.data<float>(); }, "released");
  storage->materialise();
  CHECK(std::isnan(bias.to_vector()[0]));  // new memory, new contents
}

TEST_CASE("sizes and offsets beyond 2^31 elements are exact") {
  CHECK(element_count({(int64_t{1} << 31) + 3, 5}) == ((int64_t{1} << 31) + 3) * 5);
  expect_error([] { element_count({int64_t{1} << 40, int64_t{1} << 40}); }, "2^63");
  expect_error([] { element_count({2, -1}); }, "negative");

  Context context(std::make_unique<AddressOnlyBackend>());
  const int64_t n = (int64_t{1} << 31) + 3;
  const Tensor t = Tensor::empty(context, {n});
  CHECK(t.bytes() == 4 * n);
  CHECK(context.memory().live_total() == 4 * n);
  const Tensor last = t.flat_slice(n - 1, 1);
  CHECK(last.offset() == n - 1);
  CHECK(reinterpret_cast<uintptr_t>(last.data<float>()) ==
        AddressOnlyBackend::kAddress + 4 * static_cast<uintptr_t>(n - 1));
  CHECK(reinterpret_cast<uintptr_t>(t.view().slice(n - 2, 2).data) ==
        AddressOnlyBackend::kAddress + 4 * static_cast<uintptr_t>(n - 2));
  expect_error([&] { t.flat_slice(n, 1); }, "2147483652");
  expect_error([&] { t.reshape({n - 1}); }, "2147483650");
}

TEST_CASE("the tracker counts requested bytes by category, live and at the peak") {
  Context context(make_cpu_backend());
  MemoryTracker& memory = context.memory();
  memory.start_timeline();
  {
    const Tensor p = Tensor::empty(context, {3}, DType::f32, MemoryCategory::parameter, "p");
    {
      const Tensor g = Tensor::empty(context, {5}, DType::f32, MemoryCategory::gradient, "g");
      const Tensor copy = g;  // shares
      CHECK(memory.live()[static_cast<int>(MemoryCategory::parameter)] == 12);
      CHECK(memory.live()[static_cast<int>(MemoryCategory::gradient)] == 20);
      CHECK(memory.live_total() == 32);
    }
    CHECK(memory.live_total() == 12);
    CHECK(memory.peak()[static_cast<int>(MemoryCategory::gradient)] == 20);
    CHECK(memory.peak_total() == 32);
    memory.reset_peak();
    CHECK(memory.peak_total() == 12);
  }
  CHECK(memory.live_total() == 0);
  CHECK(memory.allocation_count() == 2);
  const auto timeline = memory.take_timeline();
  REQUIRE(timeline.size() == 4);
  CHECK(timeline[0].label == "p");
  CHECK(timeline[1].delta == 20);
  CHECK(timeline[2].delta == -20);
  CHECK(timeline[3].category == MemoryCategory::parameter);
  CHECK(std::string(name_of(MemoryCategory::communication)) == "communication");
}

TEST_CASE("bf16 rounds to nearest, ties to even") {
  CHECK(static_cast<float>(bf16(1.0f)) == 1.0f);
  CHECK(bf16(std::bit_cast<float>(0x3f808000u)).bits == 0x3f80);  // a tie goes to the even neighbour, below
  CHECK(bf16(std::bit_cast<float>(0x3f818000u)).bits == 0x3f82);  // and here above
  CHECK(bf16(std::bit_cast<float>(0x3f808001u)).bits == 0x3f81);
  CHECK(bf16(std::bit_cast<float>(0x7f7fffffu)).bits == 0x7f80);                   // the largest float becomes infinite
  CHECK(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001u)))));  // NaN whose upper half is inf's
}
