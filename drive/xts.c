/* AES-XTS over a run of sectors: one call for all of them, for a call per sector costs more than
 * its cipher does. The tweak of a sector is its address, little-endian (dm-crypt's plain64).
 *
 * A context never changes once made, so that any number of threads may use it: each call works on
 * a copy of its own. libcrypto wipes what it frees. */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/evp.h>

/* `key` is both halves, 32 or 64 bytes. Returns NULL if libcrypto refuses it. */
void *xts_new(const unsigned char *key, size_t key_bytes, int encrypt)
{
    const EVP_CIPHER *cipher = key_bytes == 64   ? EVP_aes_256_xts()
                               : key_bytes == 32 ? EVP_aes_128_xts()
                                                 : NULL;
    EVP_CIPHER_CTX *context = cipher ? EVP_CIPHER_CTX_new() : NULL;

    if (context && EVP_CipherInit_ex(context, cipher, NULL, key, NULL, encrypt) != 1) {
        EVP_CIPHER_CTX_free(context);
        context = NULL;
    }
    return context;
}

void xts_free(void *context)
{
    EVP_CIPHER_CTX_free(context);
}

/* Works in place on `length` bytes, a whole number of sectors, the first of them at address `lba`.
 * Returns 1, or 0 if something was wrong; the data is then worth nothing. */
int xts_run(const void *context, uint64_t lba, unsigned char *data, size_t length,
            size_t sector_bytes)
{
    EVP_CIPHER_CTX *own;
    unsigned char tweak[16] = {0};
    int written, good;

    if (sector_bytes < 16 || sector_bytes > INT_MAX || length % sector_bytes)
        return 0;
    own = EVP_CIPHER_CTX_new();
    good = own && EVP_CIPHER_CTX_copy(own, context);
    for (; good && length; length -= sector_bytes, data += sector_bytes, lba++) {
        for (int byte = 0; byte < 8; byte++)
            tweak[byte] = (unsigned char)(lba >> 8 * byte);
        good = EVP_CipherInit_ex(own, NULL, NULL, NULL, tweak, -1) == 1 &&
               EVP_CipherUpdate(own, data, &written, data, (int)sector_bytes) == 1 &&
               (size_t)written == sector_bytes;
    }
    EVP_CIPHER_CTX_free(own);
    return good;
}
