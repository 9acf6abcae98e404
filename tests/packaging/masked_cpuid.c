// For LD_PRELOAD: the processor as one that lacks features, to whoever asks it by CPUID, which Linux
// turns into faults. MASKED_CPUID names the features: "leaf.subleaf.register.bit" in hexadecimal,
// registers as a to d, the subleaf of 7 only. Status 77 where the processor cannot do this.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static struct { unsigned leaf, subleaf, registers[4]; } masks[64];
static int count;

static int set_cpuid(unsigned long enabled) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, enabled); }

static void on_fault(int signal, siginfo_t *info, void *raw) {
    (void)info;
    greg_t *registers = ((ucontext_t *)raw)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) {
        struct sigaction none = {.sa_handler = SIG_DFL};
        sigaction(signal, &none, NULL);
        return;
    }
    unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], found[4];
    set_cpuid(1);
    __cpuid_count(leaf, subleaf, found[0], found[1], found[2], found[3]);
    set_cpuid(0);
    for (int i = 0; i < count; i++)
        if (masks[i].leaf == leaf && (leaf != 7 || masks[i].subleaf == subleaf))
            for (int j = 0; j < 4; j++) found[j] &= ~masks[i].registers[j];
    registers[REG_RAX] = found[0];
    registers[REG_RBX] = found[1];
    registers[REG_RCX] = found[2];
    registers[REG_RDX] = found[3];
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    const char *text = getenv("MASKED_CPUID");
    unsigned leaf, subleaf, bit;
    char name;
    int length;
    while (text && count < 64 &&
           sscanf(text, " %x.%x.%c.%x%n", &leaf, &subleaf, &name, &bit, &length) == 4) {
        masks[count].leaf = leaf;
        masks[count].subleaf = subleaf;
        masks[count++].registers[name - 'a'] = 1u << bit;
        text += length;
    }
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    if (set_cpuid(0) != 0) _exit(77);
}
