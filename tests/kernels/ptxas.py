"""What ptxas says of the kernels of a .cu file for one generation: written to a file, so that tests read it (tests/kernels/test_ptxas.py).

    python3 ptxas.py NVCC GENERATION SOURCE OUTPUT DEPFILE INCLUDE
"""
import subprocess
import sys
import tempfile

nvcc, generation, source, output, depfile, include = sys.argv[1:]
with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
    command = [nvcc, "-cubin", f"-arch=sm_{generation}", "-std=c++17", "-O3", "-Xptxas", "-v", "-I", include]
    done = subprocess.run(command + [source, "-o", cubin.name], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
subprocess.run([nvcc, "-M", "-std=c++17", "-I", include, source, "-MT", output, "-o", depfile], check=True)
version = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
names = subprocess.run(["c++filt"], input=done.stderr, stdout=subprocess.PIPE, text=True)
with open(output, "w") as f:
    f.write("version " + version.split("release ")[1].split(",")[0] + "\n")
    f.write(names.stdout if names.returncode == 0 else done.stderr)
