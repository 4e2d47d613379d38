// The table of devices. A row: what it is, ten constants with their sources, how it is met.
#include "cluster/catalogue.h"

namespace trainctl::cluster {
namespace {

constexpr double kGB = 1e9;
constexpr double kMiB = 1024.0 * 1024;
constexpr double kGiB = 1024.0 * kMiB;
constexpr double kTera = 1e12;

// Documents that many rows cite.
#define ML_ENGINEERING "stas00/ml-engineering@744d01e1 compute/accelerator/README.md"
#define V100_SHEET "NVIDIA V100 data sheet, SXM2: "
#define A100_SHEET "NVIDIA A100 data sheet: "
#define H100_SHEET "NVIDIA H100 data sheet: "
#define H100_2022 "NVIDIA H100 data sheet (2022), PCIe: "
#define H200_SHEET "NVIDIA H200 data sheet: "
#define B200_SHEET "NVIDIA DGX B200 data sheet / Blackwell data sheet, per GPU: "
#define B300_SHEET "NVIDIA Blackwell Ultra data sheet, HGX B300 per GPU: "
#define GB200_SHEET "NVIDIA GB200 NVL72 specifications, per GPU: "
#define GB300_SHEET "NVIDIA GB300 NVL72 specifications, per GPU: "
#define GA102_PAPER "NVIDIA Ampere GA102 GPU architecture white paper: "
#define ADA_PAPER "NVIDIA Ada GPU architecture white paper: "
#define CUDA_PRINTS "CUDA device properties, printed in public logs: "
#define SPARSE_HALVED " with sparsity, halved"

constexpr Constant kNoTf32 = {0, "not supported before Ampere"};
constexpr Constant kNoFp8BeforeHopper = {0, "not supported before Hopper and Ada"};
constexpr Constant kNoFp4BeforeBlackwell = {0, "not supported before Blackwell"};
constexpr Constant kNoFp8Cdna2 = {0, "not supported before CDNA 3"};
constexpr Constant kNoFp4Cdna = {0, "not supported before CDNA 4"};
constexpr Constant kNotMeasured = {0, "no published measurement found"};

constexpr Constant kV100Fp32 = {15.7 * kTera, V100_SHEET "single precision 15.7 TFLOPS"};
constexpr Constant kV100Half = {125 * kTera, V100_SHEET "Tensor performance 125 TFLOPS (fp16)"};
constexpr Constant kV100Bandwidth = {900 * kGB, V100_SHEET "900 GB/s"};
constexpr Constant kV100Sms = {80, CUDA_PRINTS "'Tesla V100-SXM2-16GB', multi_processor_count=80"};

constexpr Constant kA100Fp32 = {19.5 * kTera, A100_SHEET "FP32 19.5 TFLOPS"};
constexpr Constant kA100Tf32 = {156 * kTera, A100_SHEET "TF32 156 TFLOPS (312 with sparsity)"};
constexpr Constant kA100Half = {312 * kTera, A100_SHEET "BFLOAT16 312 TFLOPS (624 with sparsity)"};
constexpr Constant kA100Sms = {108, CUDA_PRINTS "'A100-SXM4-40GB', multi_processor_count=108"};
constexpr Constant kA100SxmMatmul = {271.2 * kTera, ML_ENGINEERING ": MAMF of A100 SXM, BF16 271.2"};
constexpr Constant kA100PcieMatmul = {252.9 * kTera, ML_ENGINEERING ": MAMF of A100 PCIe, BF16 252.9"};
constexpr Constant kA10080Memory = {79.33 * kGiB, "hahnyuan/PB-LLM#3, an A800-80G: CUDA total capacity 79.33 GiB"};
constexpr Constant kA10040Memory = {39.50 * kGiB, "TianheWu/CoSeR#10, an A100-40GB: CUDA total capacity 39.50 GiB"};

constexpr Constant kH100Fp32 = {67 * kTera, H100_SHEET "SXM FP32 67 TFLOPS"};
constexpr Constant kH100Tf32 = {494.5 * kTera, H100_SHEET "SXM TF32 989" SPARSE_HALVED};
constexpr Constant kH100Half = {989.5 * kTera, H100_SHEET "SXM BFLOAT16 1,979" SPARSE_HALVED};
constexpr Constant kH100Fp8 = {1979 * kTera, H100_SHEET "SXM FP8 3,958" SPARSE_HALVED};
constexpr Constant kH100Sms = {132, CUDA_PRINTS "'NVIDIA H100 80GB HBM3', multi_processor_count=132"};
constexpr Constant kH100Matmul = {794.5 * kTera, ML_ENGINEERING ": MAMF of H100 SXM, BF16 794.5 (H200 is the same)"};
constexpr Constant kH100Memory = {79.11 * kGiB, "vllm-project/vllm#27508: CUDA total capacity 79.11 GiB"};

constexpr Constant kHopperNoFp4 = kNoFp4BeforeBlackwell;
constexpr Constant kBlackwellSms = {148, "pytorch/ao#4002, a B200: Number of SMs 148"};

constexpr Constant kGrace200Sms = {152, CUDA_PRINTS "'NVIDIA GB200', multi_processor_count=152"};

constexpr Constant kCdna3Fp32 = {163.4 * kTera, ML_ENGINEERING " (AMD specifications): MI300X FP32 163.4"};
constexpr Constant kCdna3Tf32 = {653.7 * kTera, ML_ENGINEERING " (AMD specifications): MI300X TF32 653.7"};
constexpr Constant kCdna3Half = {1307.4 * kTera, "AMD Instinct MI300X data sheet: bfloat16 1,307.4 TFLOPS"};
constexpr Constant kCdna3Fp8 = {2614.9 * kTera, "AMD Instinct MI300X data sheet: FP8 2,614.9 TFLOPS"};
constexpr Constant kCdna3Units = {304, "PyTorch device properties in public logs: 'AMD Instinct MI300X', multi_processor_count=304"};

const Device kDevices[] = {
    {.name = "v100-sxm2-16gb", .label = "NVIDIA V100 SXM2 16 GB", .vendor = "nvidia",
     .memory_bytes = {16160 * kMiB, CUDA_PRINTS "'Tesla V100-SXM2-16GB', total_memory=16160MB"},
     .memory_bandwidth = kV100Bandwidth, .fp32_flops = kV100Fp32, .tf32_flops = kNoTf32,
     .half_flops = kV100Half, .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell,
     .compute_units = kV100Sms, .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .has_bf16 = false, .scale_up = "nvlink-2", .default_node = "p3.16xlarge", .note = "tensor cores take fp16 only"},
    {.name = "v100-sxm2-32gb", .label = "NVIDIA V100 SXM2 32 GB", .vendor = "nvidia",
     .memory_bytes = {31.74 * kGiB, "haotian-liu/LLaVA#812, a V100: CUDA total capacity 31.74 GiB"},
     .memory_bandwidth = kV100Bandwidth, .fp32_flops = kV100Fp32, .tf32_flops = kNoTf32,
     .half_flops = kV100Half, .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell,
     .compute_units = kV100Sms, .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .has_bf16 = false, .scale_up = "nvlink-2", .default_node = "jean-zay-v100", .note = "tensor cores take fp16 only"},

    {.name = "a100-sxm-40gb", .label = "NVIDIA A100 SXM4 40 GB", .vendor = "nvidia",
     .memory_bytes = kA10040Memory, .memory_bandwidth = {1555 * kGB, A100_SHEET "40GB 1,555 GB/s"},
     .fp32_flops = kA100Fp32, .tf32_flops = kA100Tf32, .half_flops = kA100Half,
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = kA100Sms,
     .measured_half_flops = kA100SxmMatmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-3", .default_node = "p4d.24xlarge"},
    {.name = "a100-sxm-80gb", .label = "NVIDIA A100 SXM4 80 GB", .vendor = "nvidia",
     .memory_bytes = kA10080Memory, .memory_bandwidth = {2039 * kGB, A100_SHEET "80GB SXM 2,039 GB/s"},
     .fp32_flops = kA100Fp32, .tf32_flops = kA100Tf32, .half_flops = kA100Half,
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = kA100Sms,
     .measured_half_flops = kA100SxmMatmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-3", .default_node = "dgx-a100"},
    {.name = "a100-pcie-40gb", .label = "NVIDIA A100 PCIe 40 GB", .vendor = "nvidia",
     .memory_bytes = {40326 * kMiB, CUDA_PRINTS "'NVIDIA A100-PCIE-40GB', total_memory=40326MB"},
     .memory_bandwidth = {1555 * kGB, A100_SHEET "40GB 1,555 GB/s"},
     .fp32_flops = kA100Fp32, .tf32_flops = kA100Tf32, .half_flops = kA100Half,
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = kA100Sms,
     .measured_half_flops = kA100PcieMatmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "pcie-a100-40gb"},
    {.name = "a100-pcie-80gb", .label = "NVIDIA A100 PCIe 80 GB", .vendor = "nvidia",
     .memory_bytes = kA10080Memory, .memory_bandwidth = {1935 * kGB, A100_SHEET "80GB PCIe 1,935 GB/s"},
     .fp32_flops = kA100Fp32, .tf32_flops = kA100Tf32, .half_flops = kA100Half,
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = kA100Sms,
     .measured_half_flops = kA100PcieMatmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "pcie-a100-80gb"},
    {.name = "a800-sxm-80gb", .label = "NVIDIA A800 SXM4 80 GB", .vendor = "nvidia",
     .memory_bytes = kA10080Memory,
     .memory_bandwidth = {2039 * kGB, "citsjtu2020/LLM-Prof hardware_spec.md: A800 SXM4 80GB 2039 GB/s"},
     .fp32_flops = {19.5 * kTera, A100_SHEET "FP32 19.5 TFLOPS; the A800 differs in NVLink alone"},
     .tf32_flops = {156 * kTera, A100_SHEET "TF32 156 TFLOPS; the A800 differs in NVLink alone"},
     .half_flops = {312 * kTera, "citsjtu2020/LLM-Prof hardware_spec.md: A800 SXM4 80GB FP16 312e12"},
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = kA100Sms,
     .measured_half_flops = kA100SxmMatmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-3-a800", .default_node = "hgx-a800"},

    {.name = "h100-sxm-80gb", .label = "NVIDIA H100 SXM5 80 GB", .vendor = "nvidia",
     .memory_bytes = kH100Memory, .memory_bandwidth = {3350 * kGB, H100_SHEET "SXM 3.35 TB/s"},
     .fp32_flops = kH100Fp32, .tf32_flops = kH100Tf32, .half_flops = kH100Half, .fp8_flops = kH100Fp8,
     .fp4_flops = kHopperNoFp4, .compute_units = kH100Sms,
     .measured_half_flops = kH100Matmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-4", .default_node = "dgx-h100", .note = "up to 700 W"},
    {.name = "h100-sxm-96gb-hbm2e", .label = "NVIDIA H100 SXM5 96 GB HBM2e, 500 W", .vendor = "nvidia",
     .memory_bytes = {95 * kGiB, "pytorch/torchtitan@3faaa1a0 docs/performance.md: 95GB memory; nominal, read as GiB"},
     .memory_bandwidth = {2400 * kGB, "pytorch/torchtitan@b5bcd76c benchmarks/llama3_h100_202412_torchtitan.md: 2.4 TB/s"},
     .fp32_flops = kH100Fp32, .tf32_flops = kH100Tf32,
     .half_flops = {989.5 * kTera, H100_SHEET "SXM BFLOAT16 1,979" SPARSE_HALVED "; torchtitan, ibid.: the true peak of this variant is lower and unknown"},
     .fp8_flops = kH100Fp8, .fp4_flops = kHopperNoFp4, .compute_units = kH100Sms,
     .measured_half_flops = {0.78 * 989 * kTera, "pytorch/ao@36027d82 torchao/testing/training/roofline_utils.py: pct_achievable_gemm_tops 0.78 of 989e12"},
     .measured_memory_bandwidth = {2200 * kGB, "pytorch/ao@36027d82 torchao/testing/training/roofline_utils.py: about 2.2k GBPS"},
     .scale_up = "nvlink-4", .default_node = "grand-teton-h100",
     .note = "500 W by default; its matrix peak is that of the 700 W part, no other was published"},
    {.name = "h100-pcie-80gb", .label = "NVIDIA H100 PCIe 80 GB", .vendor = "nvidia",
     .memory_bytes = {81008 * kMiB, CUDA_PRINTS "'NVIDIA H100 PCIe', total_memory=81008MB"},
     .memory_bandwidth = {2000 * kGB, H100_2022 "2 TB/s"},
     .fp32_flops = {51 * kTera, H100_2022 "FP32 51 TFLOPS"},
     .tf32_flops = {378 * kTera, H100_2022 "TF32 756" SPARSE_HALVED},
     .half_flops = {756.5 * kTera, H100_2022 "BFLOAT16 1,513" SPARSE_HALVED},
     .fp8_flops = {1513 * kTera, H100_2022 "FP8 3,026" SPARSE_HALVED},
     .fp4_flops = kHopperNoFp4, .compute_units = {114, CUDA_PRINTS "'NVIDIA H100 PCIe', multi_processor_count=114"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-5", .default_node = "pcie-h100", .note = "350 W"},
    {.name = "h100-nvl-94gb", .label = "NVIDIA H100 NVL 94 GB", .vendor = "nvidia",
     .memory_bytes = {93.00 * kGiB, "ali-vilab/VACE#56, an H100 NVL: CUDA total capacity 93.00 GiB"},
     .memory_bandwidth = {3900 * kGB, H100_SHEET "NVL 3.9 TB/s"},
     .fp32_flops = {60 * kTera, H100_SHEET "NVL FP32 60 TFLOPS"},
     .tf32_flops = {417.5 * kTera, H100_SHEET "NVL TF32 835" SPARSE_HALVED},
     .half_flops = {835.5 * kTera, H100_SHEET "NVL BFLOAT16 1,671" SPARSE_HALVED},
     .fp8_flops = {1670.5 * kTera, H100_SHEET "NVL FP8 3,341" SPARSE_HALVED},
     .fp4_flops = kHopperNoFp4, .compute_units = {132, "NVIDIA H100 NVL product brief: 16,896 CUDA cores, 128 to an SM"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-bridge-h100", .default_node = "h100-nvl-pair", .note = "350 to 400 W"},
    {.name = "h800-sxm-80gb", .label = "NVIDIA H800 SXM5 80 GB", .vendor = "nvidia",
     .memory_bytes = kH100Memory,
     .memory_bandwidth = {3350 * kGB, "citsjtu2020/LLM-Prof hardware_spec.md: H800 3350 GB/s"},
     .fp32_flops = kH100Fp32, .tf32_flops = kH100Tf32,
     .half_flops = {989.5 * kTera, "citsjtu2020/LLM-Prof hardware_spec.md: H800 FP16 989e12, as the H100"},
     .fp8_flops = kH100Fp8, .fp4_flops = kHopperNoFp4, .compute_units = kH100Sms,
     .measured_half_flops = kH100Matmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-4-h800", .default_node = "hgx-h800", .note = "an H100 with 400 GB/s of NVLink"},
    {.name = "h200-sxm-141gb", .label = "NVIDIA H200 SXM 141 GB", .vendor = "nvidia",
     .memory_bytes = {143156 * kMiB, CUDA_PRINTS "'NVIDIA H200', total_memory=143156MB"},
     .memory_bandwidth = {4800 * kGB, H200_SHEET "4.8 TB/s"},
     .fp32_flops = {67 * kTera, H200_SHEET "SXM FP32 67 TFLOPS"},
     .tf32_flops = {494.5 * kTera, H200_SHEET "SXM TF32 989" SPARSE_HALVED},
     .half_flops = {989.5 * kTera, H200_SHEET "SXM BFLOAT16 1,979" SPARSE_HALVED},
     .fp8_flops = {1979 * kTera, H200_SHEET "SXM FP8 3,958" SPARSE_HALVED},
     .fp4_flops = kHopperNoFp4, .compute_units = {132, CUDA_PRINTS "'NVIDIA H200', multi_processor_count=132"},
     .measured_half_flops = kH100Matmul, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-4", .default_node = "dgx-h200", .note = "up to 700 W"},

    {.name = "b200-sxm-180gb", .label = "NVIDIA B200 SXM 180 GB", .vendor = "nvidia",
     .memory_bytes = {178.35 * kGiB, "pytorch/ao#4002: total global memory 178.35 GB (GiB)"},
     .memory_bandwidth = {7700 * kGB, B200_SHEET "7.7 TB/s (verda.com/blog/gb300-nvl72-architecture; pytorch/ao#4002: 7,680 bits at 3,996 MHz, 7.672)"},
     .fp32_flops = {75 * kTera, B200_SHEET "FP32 75 TFLOPS"},
     .tf32_flops = {1125 * kTera, ML_ENGINEERING " (DGX B200 data sheet): TF32 1125 dense"},
     .half_flops = {2250 * kTera, ML_ENGINEERING " (DGX B200 data sheet): BF16 2250 dense"},
     .fp8_flops = {4500 * kTera, ML_ENGINEERING " (DGX B200 data sheet): FP8 4500 dense"},
     .fp4_flops = {9000 * kTera, ML_ENGINEERING " (DGX B200 data sheet): FP4 9000 dense"},
     .compute_units = kBlackwellSms,
     .measured_half_flops = {1281 * kTera, "MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json: 514 training shapes "
                                           "reach 0.488 of 2,250 on average, which this rate gives in whole tiles (the best "
                                           "single shape: 1745, stas00/ml-engineering)"},
     .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-5", .default_node = "dgx-b200", .note = "up to 1000 W; DGX B200 sets 700 W by default"},
    {.name = "b300-sxm-288gb", .label = "NVIDIA B300 SXM 288 GB", .vendor = "nvidia",
     .memory_bytes = {267.69 * kGiB, "PyTorch's out-of-memory message in public logs of B300: total capacity 267.69 GiB"},
     .memory_bandwidth = {7700 * kGB, B300_SHEET "7.7 TB/s (verda.com/blog/gb300-nvl72-architecture)"},
     .fp32_flops = {75 * kTera, B300_SHEET "FP32 75 TFLOPS"},
     .tf32_flops = {1125 * kTera, ML_ENGINEERING " (DGX B300 data sheet): TF32 1125 dense"},
     .half_flops = {2250 * kTera, ML_ENGINEERING " (DGX B300 data sheet): BF16 2250 dense"},
     .fp8_flops = {4500 * kTera, ML_ENGINEERING " (DGX B300 data sheet): FP8 4500 dense"},
     .fp4_flops = {14000 * kTera, B300_SHEET "FP4 14 PFLOPS dense (pytorch/ao@36027d82 roofline_utils.py: 14e15)"},
     .compute_units = {148, "public micro-benchmarks of 'NVIDIA B300 SXM6 AC (sm_103a, 148 SMs)'"},
     .measured_half_flops = {1769 * kTera, ML_ENGINEERING ": MAMF of B300 SXM, BF16 1769"},
     .measured_memory_bandwidth = {0.84 * 8000 * kGB, "pytorch/ao@36027d82 roofline_utils.py: pct_achievable_mem_bw 0.84 of 8e12, measured"},
     .scale_up = "nvlink-5", .default_node = "dgx-b300", .note = "up to 1100 W"},
    {.name = "gb200-186gb", .label = "NVIDIA GB200 186 GB, one GPU of the superchip", .vendor = "nvidia",
     .memory_bytes = {184.31 * kGiB, "PyTorch's out-of-memory message in public logs of GB200: total capacity 184.31 GiB"},
     .memory_bandwidth = {8000 * kGB, GB200_SHEET "16 TB/s for a superchip of two"},
     .fp32_flops = {80 * kTera, ML_ENGINEERING " (GB200 NVL72 specifications): FP32 80"},
     .tf32_flops = {1250 * kTera, ML_ENGINEERING " (GB200 NVL72 specifications): TF32 1250 dense"},
     .half_flops = {2500 * kTera, ML_ENGINEERING " (GB200 NVL72 specifications): BF16 2500 dense"},
     .fp8_flops = {5000 * kTera, ML_ENGINEERING " (GB200 NVL72 specifications): FP8 5000 dense"},
     .fp4_flops = {10000 * kTera, ML_ENGINEERING " (GB200 NVL72 specifications): FP4 10000 dense"},
     .compute_units = kGrace200Sms,
     .measured_half_flops = {1822 * kTera, ML_ENGINEERING ": MAMF of GB200 SXM, BF16 1822"},
     .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-5-nvl72", .default_node = "gb200-nvl72", .note = "up to 1200 W"},
    {.name = "gb300-288gb", .label = "NVIDIA GB300 288 GB, one GPU of the superchip", .vendor = "nvidia",
     .memory_bytes = {276.50 * kGiB, "PyTorch's out-of-memory message in public logs of GB300: total capacity 276.50 GiB"},
     .memory_bandwidth = {8000 * kGB, GB300_SHEET "576 TB/s for 72 GPUs"},
     .fp32_flops = {80 * kTera, ML_ENGINEERING " (GB300 NVL72 specifications): FP32 80"},
     .tf32_flops = {1250 * kTera, ML_ENGINEERING " (GB300 NVL72 specifications): TF32 1250 dense"},
     .half_flops = {2500 * kTera, ML_ENGINEERING " (GB300 NVL72 specifications): BF16 2500 dense"},
     .fp8_flops = {5000 * kTera, ML_ENGINEERING " (GB300 NVL72 specifications): FP8 5000 dense"},
     .fp4_flops = {15000 * kTera, ML_ENGINEERING " (GB300 NVL72 specifications): FP4 15000 dense"},
     .compute_units = {152, "as the GB200 (" CUDA_PRINTS "multi_processor_count=152); none found for the GB300 itself"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "nvlink-5-nvl72", .default_node = "gb300-nvl72", .note = "up to 1400 W"},

    {.name = "rtx-3090", .label = "NVIDIA GeForce RTX 3090", .vendor = "nvidia",
     .memory_bytes = {24259 * kMiB, CUDA_PRINTS "'NVIDIA GeForce RTX 3090', total_memory=24259MB"},
     .memory_bandwidth = {936 * kGB, GA102_PAPER "RTX 3090 936 GB/s"},
     .fp32_flops = {35.6 * kTera, GA102_PAPER "RTX 3090 FP32 35.6 TFLOPS"},
     .tf32_flops = {35.6 * kTera, GA102_PAPER "RTX 3090 TF32 35.6 TFLOPS (71 with sparsity)"},
     .half_flops = {71 * kTera, GA102_PAPER "RTX 3090 BF16 with FP32 accumulate 71 TFLOPS (142 with sparsity)"},
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell,
     .compute_units = {82, CUDA_PRINTS "'NVIDIA GeForce RTX 3090', multi_processor_count=82"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "workstation-3090"},
    {.name = "rtx-4090", .label = "NVIDIA GeForce RTX 4090", .vendor = "nvidia",
     .memory_bytes = {23.64 * kGiB, "ali-vilab/VGen#104, an RTX 4090: CUDA total capacity 23.64 GiB"},
     .memory_bandwidth = {1008 * kGB, ADA_PAPER "RTX 4090 1008 GB/s"},
     .fp32_flops = {82.6 * kTera, ADA_PAPER "RTX 4090 FP32 82.6 TFLOPS"},
     .tf32_flops = {82.6 * kTera, ADA_PAPER "RTX 4090 TF32 82.6 TFLOPS (165.2 with sparsity)"},
     .half_flops = {165.2 * kTera, ADA_PAPER "RTX 4090 BF16 with FP32 accumulate 165.2 TFLOPS (330.4 with sparsity)"},
     .fp8_flops = {330.3 * kTera, ADA_PAPER "RTX 4090 FP8 with FP32 accumulate 330.3 TFLOPS (660.6 with sparsity)"},
     .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = {128, CUDA_PRINTS "'NVIDIA GeForce RTX 4090', multi_processor_count=128"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "workstation-4090"},
    {.name = "rtx-a6000", .label = "NVIDIA RTX A6000", .vendor = "nvidia",
     .memory_bytes = {48676 * kMiB, CUDA_PRINTS "'NVIDIA RTX A6000', total_memory=48676MB"},
     .memory_bandwidth = {768 * kGB, "NVIDIA RTX A6000 data sheet: 768 GB/s"},
     .fp32_flops = {38.7 * kTera, "NVIDIA RTX A6000 data sheet: single precision 38.7 TFLOPS"},
     .tf32_flops = {77.4 * kTera, GA102_PAPER "RTX A6000 TF32 77.4 TFLOPS (154.8 with sparsity)"},
     .half_flops = {154.85 * kTera, "NVIDIA RTX A6000 data sheet: Tensor performance 309.7" SPARSE_HALVED},
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell,
     .compute_units = {84, CUDA_PRINTS "'NVIDIA RTX A6000', multi_processor_count=84"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "workstation-a6000"},
    {.name = "rtx-6000-ada", .label = "NVIDIA RTX 6000 Ada Generation", .vendor = "nvidia",
     .memory_bytes = {48622 * kMiB, CUDA_PRINTS "'NVIDIA RTX 6000 Ada Generation', total_memory=48622MB"},
     .memory_bandwidth = {960 * kGB, "NVIDIA RTX 6000 Ada data sheet: 960 GB/s"},
     .fp32_flops = {91.1 * kTera, "NVIDIA RTX 6000 Ada data sheet: single precision 91.1 TFLOPS"},
     .tf32_flops = {182.1 * kTera, "NVIDIA RTX 6000 Ada data sheet: Tensor performance 1457.0 (FP8 with sparsity), an eighth"},
     .half_flops = {364.25 * kTera, "NVIDIA RTX 6000 Ada data sheet: Tensor performance 1457.0 (FP8 with sparsity), a quarter"},
     .fp8_flops = {728.5 * kTera, "NVIDIA RTX 6000 Ada data sheet: Tensor performance 1457.0 (FP8 with sparsity), halved"},
     .fp4_flops = kNoFp4BeforeBlackwell,
     .compute_units = {142, CUDA_PRINTS "'NVIDIA RTX 6000 Ada Generation', multi_processor_count=142"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "workstation-6000-ada"},
    {.name = "l40s", .label = "NVIDIA L40S", .vendor = "nvidia",
     .memory_bytes = {45589 * kMiB, CUDA_PRINTS "'NVIDIA L40S', total_memory=45589MB"},
     .memory_bandwidth = {864 * kGB, "NVIDIA L40S data sheet: 864 GB/s"},
     .fp32_flops = {91.6 * kTera, "NVIDIA L40S data sheet: FP32 91.6 TFLOPS"},
     .tf32_flops = {183 * kTera, "NVIDIA L40S data sheet: TF32 183 (366 with sparsity)"},
     .half_flops = {362.05 * kTera, "NVIDIA L40S data sheet: BFLOAT16 362.05 (733 with sparsity)"},
     .fp8_flops = {733 * kTera, "NVIDIA L40S data sheet: FP8 733 (1,466 with sparsity)"},
     .fp4_flops = kNoFp4BeforeBlackwell, .compute_units = {142, CUDA_PRINTS "'NVIDIA L40S', multi_processor_count=142"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "pcie-l40s"},
    {.name = "a10g", .label = "NVIDIA A10G", .vendor = "nvidia",
     .memory_bytes = {22587 * kMiB, CUDA_PRINTS "'NVIDIA A10G', total_memory=22587MB"},
     .memory_bandwidth = {600 * kGB, "NVIDIA A10G data sheet (AWS): 600 GB/s"},
     .fp32_flops = {35 * kTera, "NVIDIA A10G data sheet (AWS): FP32 35 TFLOPS"},
     .tf32_flops = {35 * kTera, "NVIDIA A10G data sheet (AWS): TF32 35 (70 with sparsity)"},
     .half_flops = {70 * kTera, "NVIDIA A10G data sheet (AWS): BF16 70 (140 with sparsity)"},
     .fp8_flops = kNoFp8BeforeHopper, .fp4_flops = kNoFp4BeforeBlackwell,
     .compute_units = {80, CUDA_PRINTS "'NVIDIA A10G', multi_processor_count=80"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "pcie-4", .default_node = "g5.48xlarge"},

    {.name = "mi250x-gcd", .label = "AMD Instinct MI250X, one of its two dies", .vendor = "amd",
     .memory_bytes = {65520 * kMiB, "PyTorch device properties in public logs: 'AMD Instinct MI250X', total_memory=65520MB"},
     .memory_bandwidth = {1638.4 * kGB, "AMD Instinct MI250X specifications: 3.2768 TB/s for two dies, halved"},
     .fp32_flops = {23.95 * kTera, ML_ENGINEERING " (AMD specifications): MI250X FP32 47.9 for two dies, halved"},
     .tf32_flops = {0, "not supported on CDNA 2"},
     .half_flops = {191.5 * kTera, ML_ENGINEERING " (AMD specifications): MI250X BF16 383 for two dies, halved"},
     .fp8_flops = kNoFp8Cdna2, .fp4_flops = kNoFp4Cdna,
     .compute_units = {110, "PyTorch device properties in public logs: 'AMD Instinct MI250X', multi_processor_count=110"},
     .measured_half_flops = kNotMeasured, .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "xgmi-mi250x", .default_node = "mi250x-node", .note = "the driver shows a module as two devices"},
    {.name = "mi300x", .label = "AMD Instinct MI300X 192 GB", .vendor = "amd",
     .memory_bytes = {196592 * kMiB, "PyTorch device properties in public logs: 'AMD Instinct MI300X', total_memory=196592MB"},
     .memory_bandwidth = {5300 * kGB, "AMD Instinct MI300X data sheet: 5.3 TB/s"},
     .fp32_flops = kCdna3Fp32, .tf32_flops = kCdna3Tf32, .half_flops = kCdna3Half, .fp8_flops = kCdna3Fp8,
     .fp4_flops = kNoFp4Cdna, .compute_units = kCdna3Units,
     .measured_half_flops = {668.4 * kTera, ML_ENGINEERING ": MAMF of MI300X, BF16 668.4"},
     .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "xgmi-mi300x", .default_node = "mi300x-platform", .note = "up to 750 W"},
    {.name = "mi325x", .label = "AMD Instinct MI325X 256 GB", .vendor = "amd",
     .memory_bytes = {255.98 * kGiB, "PyTorch's out-of-memory message in public logs of MI325X: total capacity 255.98 GiB"},
     .memory_bandwidth = {6000 * kGB, ML_ENGINEERING " (AMD specifications): MI325X 6.00 TB/s"},
     .fp32_flops = {163.4 * kTera, ML_ENGINEERING " (AMD specifications): MI325X FP32 163.4"},
     .tf32_flops = {653.7 * kTera, ML_ENGINEERING " (AMD specifications): MI325X TF32 653.7"},
     .half_flops = {1307.4 * kTera, ML_ENGINEERING ": the MI325X computes as the MI300X (data sheet: 1,307.4)"},
     .fp8_flops = {2614.9 * kTera, ML_ENGINEERING ": the MI325X computes as the MI300X (data sheet: 2,614.9)"},
     .fp4_flops = kNoFp4Cdna, .compute_units = {304, "AMD Instinct MI325X specifications: 304 compute units"},
     .measured_half_flops = {784.9 * kTera, ML_ENGINEERING ": MAMF of MI325X at 1000 W, BF16 784.9"},
     .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "xgmi-mi300x", .default_node = "mi325x-platform", .note = "up to 1000 W"},
    {.name = "mi355x", .label = "AMD Instinct MI355X 288 GB", .vendor = "amd",
     .memory_bytes = {287.98 * kGiB, "PyTorch's out-of-memory message in public logs of MI355X: total capacity 287.98 GiB"},
     .memory_bandwidth = {8000 * kGB, ML_ENGINEERING " (AMD specifications): MI355X 8.00 TB/s"},
     .fp32_flops = {157.3 * kTera, ML_ENGINEERING " (AMD specifications): MI355X FP32 157.3"},
     .tf32_flops = {0, ML_ENGINEERING ": AMD publishes no TF32 figure for the MI355X"},
     .half_flops = {2516.6 * kTera, ML_ENGINEERING ": MI355X 1,024 matrix cores at 2,400 MHz, 2516.6 (AMD prints 2.5 PFLOPS)"},
     .fp8_flops = {5033.2 * kTera, ML_ENGINEERING ": MI355X 5 PFLOPS; twice its BF16"},
     .fp4_flops = {10066.3 * kTera, ML_ENGINEERING ": MI355X 10.1 PFLOPS; four times its BF16"},
     .compute_units = {256, ML_ENGINEERING ": MI355X 1,024 matrix cores, 4 to a compute unit"},
     .measured_half_flops = {1565 * kTera, ML_ENGINEERING ": MAMF of MI355X, BF16 1565"},
     .measured_memory_bandwidth = kNotMeasured,
     .scale_up = "xgmi-mi355x", .default_node = "mi355x-platform", .note = "up to 1400 W"},
};

}  // namespace

absl::Span<const Device> Devices() { return kDevices; }

std::array<std::pair<const char*, Constant>, kDeviceConstants> DeviceConstants(const Device& device) {
  return {{{"memory_bytes", device.memory_bytes},
           {"memory_bandwidth", device.memory_bandwidth},
           {"fp32_flops", device.fp32_flops},
           {"tf32_flops", device.tf32_flops},
           {"half_flops", device.half_flops},
           {"fp8_flops", device.fp8_flops},
           {"fp4_flops", device.fp4_flops},
           {"compute_units", device.compute_units},
           {"measured_half_flops", device.measured_half_flops},
           {"measured_memory_bandwidth", device.measured_memory_bandwidth}}};
}

}  // namespace trainctl::cluster
