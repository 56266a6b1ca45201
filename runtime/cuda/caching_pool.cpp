#include "runtime/cuda/caching_pool.h"

#include <algorithm>
#include <bit>

#include "runtime/check.h"
#include "runtime/cuda/handles.h"

namespace trencadis {

namespace {
constexpr int64_t kSmallest = 512, kLargestCut = int64_t{1} << 20, kSlab = int64_t{2} << 20;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
}  // namespace

// The device's own refusal comes first; what pools keep is given back only then.
void* PoolGroup::get(int64_t bytes) {
  void* data = nullptr;
  cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is dealt with here
    for (CachingPool* pool : pools_) pool->release_cached_locked();
    status = cudaMalloc(&data, static_cast<size_t>(bytes));
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    int64_t in_use = 0;
    for (const CachingPool* pool : pools_) in_use += pool->statistics_.in_use;
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    throw Error(
        fmt::format("{} has no room for {} bytes: {} are in use by this rank, {} of {} are free; use a smaller "
                    "model or micro-batch, activation checkpointing, a higher ZeRO stage, or more ranks",
                    device_.name(), bytes, in_use, free, total));
  }
  CUDA_CHECK(status);
  return data;
}

CachingPool::CachingPool(PoolGroup& group, cudaStream_t owner, Options options)
    : group_(group), owner_(owner), options_(options) {
  const std::lock_guard lock(group_.mutex_);
  group_.pools_.push_back(this);
}

CachingPool::~CachingPool() {
  const std::lock_guard lock(group_.mutex_);
  std::erase(group_.pools_, this);
  for (const Slab& slab : slabs_) cudaFree(slab.data);
}

int64_t CachingPool::block_size(int64_t bytes) {
  if (bytes > kLargestCut) return round_up(bytes, kSlab);
  if (bytes <= kSmallest) return kSmallest;
  const auto doubling = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1)));
  return round_up(bytes, std::max(kSmallest, doubling / 8));
}

void CachingPool::add_slab(int64_t block_bytes) {
  const int64_t blocks = options_.exact || block_bytes > kLargestCut ? 1 : kSlab / block_bytes;
  void* data = group_.get(blocks * block_bytes);
  slabs_.push_back({data, block_bytes, blocks, 0});
  for (int64_t i = blocks; i-- > 0;)
    free_[block_bytes].push_back({static_cast<char*>(data) + i * block_bytes, &slabs_.back(), 0});
  statistics_.cached += blocks * block_bytes;
  ++statistics_.slabs;
  ++statistics_.device_allocations;
}

void* CachingPool::allocate(int64_t bytes) {
  CHECK(bytes >= 0, "an allocation of {} bytes", bytes);
  const int64_t size = options_.exact ? std::max<int64_t>(bytes, 1) : block_size(bytes);
  Block block;
  {
    const std::lock_guard lock(group_.mutex_);
    std::vector<Block>& free = free_[size];
    if (free.empty()) add_slab(size);
    block = free.back();
    free.pop_back();
    block.asked = bytes;
    ++block.slab->live;
    live_.emplace(block.data, block);
    statistics_.cached -= size;
    statistics_.in_use += size;
  }
  if (options_.poison) CUDA_CHECK(cudaMemsetAsync(block.data, 0xff, static_cast<size_t>(size), owner_));
  return block.data;
}

void CachingPool::free(void* data, int64_t bytes) {
  const std::lock_guard lock(group_.mutex_);
  const auto found = live_.find(data);
  CHECK(found != live_.end(), "free of a block of {} bytes that is not alive (freed twice, or of another context)",
        bytes);
  const Block block = found->second;
  CHECK(block.asked == bytes, "free of {} bytes, allocated as {}", bytes, block.asked);
  live_.erase(found);
  --block.slab->live;
  free_[block.slab->block_bytes].push_back(block);
  statistics_.in_use -= block.slab->block_bytes;
  statistics_.cached += block.slab->block_bytes;
}

void CachingPool::release_cached() {
  const std::lock_guard lock(group_.mutex_);
  release_cached_locked();
}

// cudaFree waits for the device, so that no queued kernel still uses the memory when it is another's.
void CachingPool::release_cached_locked() {
  for (auto& [size, blocks] : free_) std::erase_if(blocks, [](const Block& block) { return block.slab->live == 0; });
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    if (slab->live > 0) {
      ++slab;
      continue;
    }
    CUDA_CHECK(cudaFree(slab->data));
    statistics_.cached -= slab->blocks * slab->block_bytes;
    --statistics_.slabs;
    slab = slabs_.erase(slab);
  }
}

CachingPool::Statistics CachingPool::statistics() const {
  const std::lock_guard lock(group_.mutex_);
  return statistics_;
}

}  // namespace trencadis
