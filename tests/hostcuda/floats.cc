// floats.cc: prints a digest of what each function of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h gives on the host for all 16-bit and 8-bit numbers,
// and for floats, doubles and integers around every place where rounding changes. It compiles against NVIDIA's headers and against ours;
// floats.txt is what it prints with those of CUDA 13.0.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

const uint64_t START = 14695981039346656037ULL; // FNV-1a
uint64_t digest = START;

template <class T> void add(const T &value)
{
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof(T));
  for (unsigned char byte : bytes) {
    digest = (digest ^ byte) * 1099511628211ULL;
  }
}

void print(const char *type, const char *name)
{
  printf("%s %s %016llx\n", type, name, (unsigned long long)digest);
  digest = START;
}

template <class T, class Bits> T of_bits(Bits bits)
{
  static_assert(sizeof(T) == sizeof(Bits), "");
  T value;
  memcpy((void *)&value, &bits, sizeof value);
  return value;
}

// For all codes: expr of `a`.
#define UNARY(name, expr)                            \
  for (unsigned code_ = 0; code_ < 65536; code_++) { \
    T a = of_bits<T>((uint16_t)code_);               \
    (void)a;                                         \
    add(expr);                                       \
  }                                                  \
  print(type, name);
// For all codes, each with a few others: expr of `a` and `b`, and of the pairs `p` and `q`.
#define BINARY(name, expr)                                                                                                        \
  for (unsigned code_ = 0; code_ < 65536; code_++) {                                                                              \
    for (unsigned other : others) {                                                                                               \
      T a = of_bits<T>((uint16_t)code_), b = of_bits<T>((uint16_t)other);                                                         \
      T2 p = of_bits<T2>((uint32_t)(code_ | (code_ ^ 0x8001) << 16)), q = of_bits<T2>((uint32_t)(other | (uint32_t)other << 16)); \
      (void)a, (void)b, (void)p, (void)q;                                                                                         \
      add(expr);                                                                                                                  \
    }                                                                                                                             \
  }                                                                                                                               \
  print(type, name);
#define UNARIES(f) UNARY(#f, f(a))
#define BINARIES(f) BINARY(#f, f(a, b))
#define PAIRS(f) BINARY(#f, f(p, q))

const unsigned others[] = {0x0000, 0x8000, 0x8001, 0x0400, 0x3c00, 0xbf80, 0x4248, 0x7bff, 0xfc00, 0x7e01, 0x7f80, 0xffc1};

// Of two zeros NVIDIA's bfloat16 returns the first one where its manual says which is the larger one.
template <class T> bool zeros(T a, T b)
{
  return (float)a == 0 && (float)b == 0;
}

template <class T, class T2> void arithmetic(const char *type)
{
  BINARIES(__hadd)
  BINARIES(__hsub)
  BINARIES(__hmul)
  BINARIES(__hdiv)
  BINARIES(__hadd_sat)
  BINARIES(__hsub_sat)
  BINARIES(__hmul_sat)
  BINARIES(__hadd_rn)
  BINARIES(__hsub_rn)
  BINARIES(__hmul_rn)
  BINARIES(__hmax)
  BINARIES(__hmin)
  BINARY("__hmax_nan", zeros(a, b) ? a : __hmax_nan(a, b))
  BINARY("__hmin_nan", zeros(a, b) ? a : __hmin_nan(a, b))
  PAIRS(__hadd2)
  PAIRS(__hsub2)
  PAIRS(__hmul2)
  PAIRS(__h2div)
  PAIRS(__hadd2_sat)
  PAIRS(__hmax2)
  BINARY("__hmin2_nan", zeros(p.x, q.x) || zeros(p.y, q.y) ? p : __hmin2_nan(p, q))
  BINARY("+ - * /", (a + b) * (a - b) / b)
  BINARY("+= -= *= /=", ((a += b) -= b, (a *= b) /= b))
  BINARY("pair + - * /", (p + q) * (p - q) / q)
  UNARY("++", (a++, ++a))
  UNARY("--", (a--, --a))
  UNARY("unary -", -a)
  UNARY("unary +", +a)
  UNARIES(__hneg)
  UNARIES(__habs)
  UNARIES(__hisnan)
  UNARIES(__hisinf)
  BINARY("__hneg2", __hneg2(p))
  BINARY("__habs2", __habs2(p))
  BINARY("__hisnan2", __hisnan2(p))
  BINARY("__lowhigh2highlow", __lowhigh2highlow(p))
  BINARY("__low2float", __low2float(p))
  BINARY("__high2float", __high2float(p))
}

#define COMPARISON(name)   \
  BINARIES(__h##name)      \
  PAIRS(__h##name##2)      \
  PAIRS(__h##name##2_mask) \
  PAIRS(__hb##name##2)

template <class T, class T2> void comparisons(const char *type)
{
  COMPARISON(eq)
  COMPARISON(ne)
  COMPARISON(le)
  COMPARISON(ge)
  COMPARISON(lt)
  COMPARISON(gt)
  COMPARISON(equ)
  COMPARISON(neu)
  COMPARISON(leu)
  COMPARISON(geu)
  COMPARISON(ltu)
  COMPARISON(gtu)
  BINARY("== != < > <= >=", (a == b) | (a != b) << 1 | (a < b) << 2 | (a > b) << 3 | (a <= b) << 4 | (a >= b) << 5)
  BINARY("pair == != < > <= >=", (p == q) | (p != q) << 1 | (p < q) << 2 | (p > q) << 3 | (p <= q) << 4 | (p >= q) << 5)
}

template <class T> void to_integers(const char *type)
{
  UNARY("char", (char)a)
  UNARY("signed char", (signed char)a)
  UNARY("unsigned char", (unsigned char)a)
  UNARY("short", (short)a)
  UNARY("unsigned short", (unsigned short)a)
  UNARY("int", (int)a)
  UNARY("unsigned", (unsigned)a)
  UNARY("long", (long)a)
  UNARY("unsigned long", (unsigned long)a)
  UNARY("long long", (long long)a)
  UNARY("unsigned long long", (unsigned long long)a)
  UNARY("bool", (bool)a)
  UNARY("float", (float)a)
}

// For floats on and beside every place where a result changes, in each of these forms.
#define FLOATS(name, expr)                                                                                                              \
  for (uint32_t top = 0; top < 65536; top++) {                                                                                          \
    for (uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2000u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu}) { \
      float x = of_bits<float>(top << 16 | low);                                                                                        \
      add(expr);                                                                                                                        \
    }                                                                                                                                   \
  }                                                                                                                                     \
  print(type, name);
#define DOUBLES(name, expr)                                                                                                                \
  for (uint64_t top = 0; top < 65536; top++) {                                                                                             \
    for (uint64_t low :                                                                                                                    \
         {0x0ull, 0x1ull, 0x7fffffffffull, 0x8000000000ull, 0x3fffffffffffull, 0x400000000000ull, 0x800000000001ull, 0xffffffffffffull}) { \
      double x = of_bits<double>(top << 48 | low);                                                                                         \
      add(expr);                                                                                                                           \
    }                                                                                                                                      \
  }                                                                                                                                        \
  print(type, name);
// For integers of few ones, and their neighbours.
#define INTEGERS(name, integer, expr)                            \
  for (int i = 0; i < 64; i++) {                                 \
    for (int j = 0; j < 64; j++) {                               \
      for (int k = -1; k <= 1; k++) {                            \
        uint64_t wide = (1ull << i) + (1ull << j) + (uint64_t)k; \
        integer x = (integer)wide;                               \
        add(expr);                                               \
        x = (integer)(0 - wide);                                 \
        add(expr);                                               \
      }                                                          \
    }                                                            \
  }                                                              \
  print(type, name);

template <class T> void from_numbers(const char *type)
{
  FLOATS("of float", T(x))
  DOUBLES("of double", T(x))
  INTEGERS("of short", short, T(x))
  INTEGERS("of unsigned short", unsigned short, T(x))
  INTEGERS("of int", int, T(x))
  INTEGERS("of unsigned", unsigned, T(x))
  INTEGERS("of long", long, T(x))
  INTEGERS("of unsigned long", unsigned long, T(x))
  INTEGERS("of long long", long long, T(x))
  INTEGERS("of unsigned long long", unsigned long long, T(x))
}

#define FLOAT_MODE(f) FLOATS(#f, f(x))
#define INTEGER_MODE(f, integer) INTEGERS(#f, integer, f(x))

void half_only()
{
  typedef __half T;
  const char *type = "half";
  UNARIES(__half2float)
  UNARY("of bfloat16", __half(of_bits<__nv_bfloat16>((uint16_t)code_)))
  FLOAT_MODE(__float2half)
  FLOAT_MODE(__float2half_rn)
  FLOAT_MODE(__float2half_rz)
  FLOAT_MODE(__float2half_rd)
  FLOAT_MODE(__float2half_ru)
  FLOATS("__floats2half2_rn", __floats2half2_rn(x, -x))
  FLOATS("__float22half2_rn", __half22float2(__float22half2_rn(make_float2(x, -x))))
  DOUBLES("__double2half", __double2half(x))
  INTEGER_MODE(__int2half_rz, int)
  INTEGER_MODE(__int2half_rd, int)
  INTEGER_MODE(__int2half_ru, int)
  INTEGER_MODE(__short2half_ru, short)
  INTEGER_MODE(__ushort2half_rd, unsigned short)
  INTEGER_MODE(__uint2half_rz, unsigned)
  INTEGER_MODE(__ll2half_rn, long long)
  INTEGER_MODE(__ll2half_rd, long long)
  INTEGER_MODE(__ull2half_ru, unsigned long long)
  UNARIES(__half2char_rz)
  UNARIES(__half2uchar_rz)
  UNARIES(__half2short_rz)
  UNARIES(__half2ushort_rz)
  UNARIES(__half2int_rz)
  UNARIES(__half2uint_rz)
  UNARIES(__half2ll_rz)
  UNARIES(__half2ull_rz)
  UNARIES(__half_as_short)
  UNARY("__ushort_as_half", __ushort_as_half(__half_as_ushort(a)))
  UNARY("halves", __highs2half2(__half2half2(a), __halves2half2(a, __half(1))))
}

void bfloat16_only()
{
  typedef __nv_bfloat16 T;
  const char *type = "bfloat16";
  UNARIES(__bfloat162float)
  UNARY("of half", __nv_bfloat16(of_bits<__half>((uint16_t)code_)))
  FLOAT_MODE(__float2bfloat16)
  FLOAT_MODE(__float2bfloat16_rn)
  FLOAT_MODE(__float2bfloat16_rz)
  FLOAT_MODE(__float2bfloat16_rd)
  FLOAT_MODE(__float2bfloat16_ru)
  FLOATS("__floats2bfloat162_rn", __floats2bfloat162_rn(x, -x))
  FLOATS("__float22bfloat162_rn", __bfloat1622float2(__float22bfloat162_rn(make_float2(x, -x))))
  DOUBLES("__double2bfloat16", __double2bfloat16(x))
  INTEGER_MODE(__int2bfloat16_rn, int)
  INTEGER_MODE(__uint2bfloat16_rn, unsigned)
  INTEGER_MODE(__ll2bfloat16_rn, long long)
  INTEGER_MODE(__ull2bfloat16_rn, unsigned long long)
  UNARIES(__bfloat162char_rz)
  UNARIES(__bfloat162uchar_rz)
  UNARIES(__bfloat162short_rz)
  UNARIES(__bfloat162ushort_rz)
  UNARIES(__bfloat162int_rz)
  UNARIES(__bfloat162uint_rz)
  UNARIES(__bfloat162ll_rz)
  UNARIES(__bfloat162ull_rz)
  UNARIES(__bfloat16_as_short)
  UNARY("__ushort_as_bfloat16", __ushort_as_bfloat16(__bfloat16_as_ushort(a)))
  UNARY("halves", __highs2bfloat162(__bfloat162bfloat162(a), __halves2bfloat162(a, __nv_bfloat16(1))))
}

void fp8_conversions(const char *type, __nv_fp8_interpretation_t kind, __nv_saturation_t saturate)
{
  FLOATS("of float", __nv_cvt_float_to_fp8(x, saturate, kind))
  FLOATS("of float2", __nv_cvt_float2_to_fp8x2(make_float2(x, -x), saturate, kind))
  DOUBLES("of double", __nv_cvt_double_to_fp8(x, saturate, kind))
  DOUBLES("of double2", __nv_cvt_double2_to_fp8x2(make_double2(x, -x), saturate, kind))
  typedef uint16_t T;
  UNARY("of half", __nv_cvt_halfraw_to_fp8(of_bits<__half_raw>(a), saturate, kind))
  UNARY("of half2", __nv_cvt_halfraw2_to_fp8x2(of_bits<__half2_raw>(a * 0x10001u), saturate, kind))
  UNARY("of bfloat16", __nv_cvt_bfloat16raw_to_fp8(of_bits<__nv_bfloat16_raw>(a), saturate, kind))
  UNARY("of bfloat162", __nv_cvt_bfloat16raw2_to_fp8x2(of_bits<__nv_bfloat162_raw>(a * 0x10001u), saturate, kind))
  UNARY("to half", __nv_cvt_fp8_to_halfraw((uint8_t)a, kind))
  UNARY("to half2", __nv_cvt_fp8x2_to_halfraw2(a, kind))
}

template <class E, class E2, class E4> void fp8_types(const char *type)
{
  typedef uint16_t T;
#define TO(name, to) UNARY(name, (to)of_bits<E>((uint8_t)a))
  TO("to half", __half)
  TO("to bfloat16", __nv_bfloat16)
  TO("to float", float)
  TO("to double", double)
  TO("to char", char)
  TO("to signed char", signed char)
  TO("to unsigned char", unsigned char)
  TO("to short", short)
  TO("to unsigned short", unsigned short)
  TO("to int", int)
  TO("to unsigned", unsigned)
  TO("to long", long)
  TO("to unsigned long", unsigned long)
  TO("to long long", long long)
  TO("to unsigned long long", unsigned long long)
  TO("to bool", bool)
  UNARY("pair to half2", (__half2)of_bits<E2>(a))
  UNARY("pair to float2", (float2)of_bits<E2>(a))
  UNARY("four to float4", (float4)of_bits<E4>(a | (a ^ 0x1234u) << 16))
  UNARY("of half", E(of_bits<__half>(a)))
  UNARY("of bfloat16", E(of_bits<__nv_bfloat16>(a)))
  UNARY("pair of half2", E2(of_bits<__half2>(a * 0x10001u)))
  UNARY("pair of bfloat162", E2(of_bits<__nv_bfloat162>(a * 0x10001u)))
  UNARY("four of half2", E4(of_bits<__half2>(a * 0x10001u), of_bits<__half2>(a * 0x10003u)))
  UNARY("four of bfloat162", E4(of_bits<__nv_bfloat162>(a * 0x10001u), of_bits<__nv_bfloat162>(a * 0x10003u)))
  FLOATS("pair of float2", E2(make_float2(x, x / 3)))
  FLOATS("four of float4", E4(make_float4(x, x / 3, -x, x * 3)))
  DOUBLES("pair of double2", E2(make_double2(x, x / 3)))
}

} // namespace

int main()
{
  arithmetic<__half, __half2>("half");
  arithmetic<__nv_bfloat16, __nv_bfloat162>("bfloat16");
  comparisons<__half, __half2>("half");
  comparisons<__nv_bfloat16, __nv_bfloat162>("bfloat16");
  to_integers<__half>("half");
  to_integers<__nv_bfloat16>("bfloat16");
  from_numbers<__half>("half");
  from_numbers<__nv_bfloat16>("bfloat16");
  from_numbers<__nv_fp8_e4m3>("e4m3");
  from_numbers<__nv_fp8_e5m2>("e5m2");
  half_only();
  bfloat16_only();
  fp8_conversions("e4m3", __NV_E4M3, __NV_NOSAT);
  fp8_conversions("e4m3 saturated", __NV_E4M3, __NV_SATFINITE);
  fp8_conversions("e5m2", __NV_E5M2, __NV_NOSAT);
  fp8_conversions("e5m2 saturated", __NV_E5M2, __NV_SATFINITE);
  fp8_types<__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3>("e4m3");
  fp8_types<__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2>("e5m2");
  return 0;
}
