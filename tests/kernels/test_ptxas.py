"""What nvcc makes of the kernels, for each generation: no spills, no stack, and the page that says so is up to date."""
import os
import re
import sys
import unittest

SOURCE, BUILD = os.environ["ZF_SOURCE"], os.environ["ZF_BUILD"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "bench"))
import cuda_kernels  # noqa: E402


class Ptxas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found, cls.version = cuda_kernels.read(BUILD)
        if not set(cuda_kernels.GENERATIONS) <= set(cls.found):
            raise unittest.SkipTest(f"built for {', '.join(cls.found)} (gpu_arch); the page is of {', '.join(cuda_kernels.GENERATIONS)}")

    def test_nothing_spills(self):
        for generation, kernels in self.found.items():
            for name, (registers, _, stack, spills) in kernels.items():
                with self.subTest(kernel=name, generation=generation):
                    self.assertEqual((stack, spills), (0, 0), "bytes of stack, bytes spilled")
                    self.assertLessEqual(registers, 255)

    def test_hot_kernels_are_there(self):
        for generation, kernels in self.found.items():
            families = {cuda_kernels.family(name) for name in kernels}
            self.assertEqual(set(cuda_kernels.HOT) - families, set(), f"missing in sm_{generation}")

    def test_every_kernel_can_be_launched(self):
        for generation in cuda_kernels.GENERATIONS:
            kernels = self.found[generation]
            for name, (registers, static, _, _) in kernels.items():
                threads, dynamic = cuda_kernels.block_of(name)
                self.assertGreater(cuda_kernels.blocks(generation, registers, threads, static + dynamic), 0, f"{name}, sm_{generation}")

    def test_page(self):
        with open(os.path.join(SOURCE, "kernels", "cuda", "KERNELS.md")) as f:
            kept = f.read()
        of = re.search(r"nvcc ([\d.]+)", kept).group(1)
        if of != self.version:
            self.skipTest(f"the page is of nvcc {of}, this is {self.version}")
        self.assertEqual(kept, cuda_kernels.page(BUILD), "make it anew: python3 tests/bench/cuda_kernels.py BUILD > kernels/cuda/KERNELS.md")


if __name__ == "__main__":
    unittest.main()
