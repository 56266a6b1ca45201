// The main function of the doctest programs that need a GPU: exit code 77, which ctest reports as skipped, without one.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU (%s)\n", cudaGetErrorString(status));
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
