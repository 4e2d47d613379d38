#include "rpc/job_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/secret_file.h"
#include "base/status.h"
#include "rpc/job_secret.h"

namespace trainctl::rpc {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kJob[] = "run-7.a_B";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;

Certificate Read(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

struct Names {
  std::vector<std::string> uris, dns, ips;
};
Names NamesOf(const std::string& pem) {
  const Certificate certificate = Read(pem);
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr));
  Names found;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    int kind = 0;
    auto* value = static_cast<ASN1_STRING*>(GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &kind));
    std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)), ASN1_STRING_length(value));
    (kind == GEN_URI ? found.uris : kind == GEN_DNS ? found.dns : found.ips).push_back(text);
  }
  GENERAL_NAMES_free(names);
  return found;
}

// A request for `key`, changed before it is signed.
std::string RequestPem(EVP_PKEY* key, const std::function<void(X509_REQ*)>& change = nullptr) {
  const std::unique_ptr<X509_REQ, Freer<X509_REQ_free>> request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), key);
  if (change) change(request.get());
  EXPECT_GT(X509_REQ_sign(request.get(), key, EVP_sha256()), 0);
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  char* data = nullptr;
  const long num_bytes = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, num_bytes);
}

class JobAuthorityTest : public testing::Test {
 protected:
  JobAuthorityTest() : authority_(*JobAuthority::Create(kJob, clock_)) {}

  std::string Token(const std::string& node) { return *authority_->MakeToken(node); }

  FakeClock clock_;
  std::unique_ptr<JobAuthority> authority_;
};

TEST_F(JobAuthorityTest, AnAgentIsNamedByTheAuthorityAndNotByItsRequest) {
  const std::string token = Token("node-1");
  const Key key(EVP_EC_gen("P-256"));
  const std::string greedy = RequestPem(key.get(), [](X509_REQ* request) {
    X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(request), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(kCoordinatorName), -1, -1, 0);
    STACK_OF(X509_EXTENSION)* wanted = sk_X509_EXTENSION_new_null();
    for (const auto& [nid, value] : std::vector<std::pair<int, const char*>>{
             {NID_subject_alt_name, "URI:trainctl://run-7.a_B/admin/me,DNS:trainctl-coordinator"},
             {NID_basic_constraints, "CA:TRUE"},
             {NID_ext_key_usage, "serverAuth"}}) {
      sk_X509_EXTENSION_push(wanted, X509V3_EXT_conf_nid(nullptr, nullptr, nid, value));
    }
    EXPECT_EQ(X509_REQ_add_extensions(request, wanted), 1);
    sk_X509_EXTENSION_pop_free(wanted, X509_EXTENSION_free);
  });
  const auto pem = authority_->Enroll("node-1", token, greedy);
  ASSERT_TRUE(pem.ok()) << pem.status();
  const Names names = NamesOf(*pem);
  EXPECT_THAT(names.uris, ElementsAre("trainctl://run-7.a_B/agent/node-1"));
  EXPECT_THAT(names.dns, IsEmpty());
  const Certificate certificate = Read(*pem);
  char common_name[64] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, common_name, 64);
  EXPECT_STREQ(common_name, "agent");
  EXPECT_EQ(X509_check_ca(certificate.get()), 0);
  EXPECT_EQ(X509_get_extended_key_usage(certificate.get()), uint32_t{XKU_SSL_CLIENT});
  EXPECT_EQ(*ParsePeer(names.uris, kJob), (Identity{Role::kAgent, "node-1"}));
}

TEST_F(JobAuthorityTest, WhatAnAgentIsGivenFitsItsKey) {
  const std::string token = Token("n");
  const auto mine = MakeKeyAndRequest();
  ASSERT_TRUE(mine.ok()) << mine.status();
  const auto pem = authority_->Enroll("n", token, mine->csr_pem);
  ASSERT_TRUE(pem.ok()) << pem.status();
  EXPECT_EQ(CheckCredential({mine->key_pem, *pem, authority_->ca_pem()}), absl::OkStatus());
}

TEST_F(JobAuthorityTest, AnAnswerThatWasLostIsGivenAgain) {
  const std::string token = Token("n");
  const KeyAndRequest mine = *MakeKeyAndRequest();
  const auto first = authority_->Enroll("n", token, mine.csr_pem);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = authority_->Enroll("n", token, mine.csr_pem);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
}

TEST_F(JobAuthorityTest, ATokenServesOneKey) {
  const std::string token = Token("n");
  const KeyAndRequest mine = *MakeKeyAndRequest();
  ASSERT_TRUE(authority_->Enroll("n", token, mine.csr_pem).ok());
  const absl::Status replayed = authority_->Enroll("n", token, MakeKeyAndRequest()->csr_pem).status();
  EXPECT_EQ(replayed.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(replayed), HasSubstr("used already, with another key"));
  // Which does not shut out the one whose it is.
  EXPECT_TRUE(authority_->Enroll("n", token, mine.csr_pem).ok());
}

TEST_F(JobAuthorityTest, ARequestThatIsRefusedDoesNotUseUpTheToken) {
  const std::string token = Token("n");
  EXPECT_FALSE(authority_->Enroll("n", token, "nonsense").ok());
  EXPECT_FALSE(authority_->Enroll("n", "wrong", MakeKeyAndRequest()->csr_pem).ok());
  EXPECT_TRUE(authority_->Enroll("n", token, MakeKeyAndRequest()->csr_pem).ok());
}

TEST_F(JobAuthorityTest, ATokenServesOneNode) {
  const std::string a = Token("a"), b = Token("b");
  EXPECT_EQ(a.size(), 64u);
  EXPECT_NE(a, b);
  const std::string request = MakeKeyAndRequest()->csr_pem;
  for (const auto& [node, token] : std::vector<std::pair<std::string, std::string>>{
           {"b", a}, {"a", b}, {"c", a}, {"a", ""}, {"a", a.substr(1)}, {"a", a + "0"}, {"", ""}}) {
    const absl::Status refused = authority_->Enroll(node, token, request).status();
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << node << " " << token;
  }
  EXPECT_TRUE(authority_->Enroll("a", a, request).ok());
}

TEST_F(JobAuthorityTest, ANewTokenVoidsTheLast) {
  const std::string old_token = Token("n");
  ASSERT_TRUE(authority_->Enroll("n", old_token, MakeKeyAndRequest()->csr_pem).ok());
  const std::string new_token = Token("n");
  const std::string request = MakeKeyAndRequest()->csr_pem;
  EXPECT_EQ(authority_->Enroll("n", old_token, request).status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(authority_->Enroll("n", new_token, request).ok());
}

TEST_F(JobAuthorityTest, OnlyKeysOfP256WrittenInOneWayAreSigned) {
  const std::string token = Token("n");
  const Key compressed(EVP_EC_gen("P-256"));
  ASSERT_EQ(EVP_PKEY_set_utf8_string_param(compressed.get(), OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT,
                                           OSSL_PKEY_EC_POINT_CONVERSION_FORMAT_COMPRESSED),
            1);
  const Key spelled_out(EVP_EC_gen("P-256"));
  ASSERT_EQ(EVP_PKEY_set_utf8_string_param(spelled_out.get(), OSSL_PKEY_PARAM_EC_ENCODING,
                                           OSSL_PKEY_EC_ENCODING_EXPLICIT),
            1);
  const Key p384(EVP_EC_gen("P-384")), rsa(EVP_RSA_gen(2048));
  for (EVP_PKEY* const key : {compressed.get(), spelled_out.get(), p384.get(), rsa.get()}) {
    const absl::Status refused = authority_->Enroll("n", token, RequestPem(key)).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(refused), HasSubstr("not P-256"));
  }
}

TEST_F(JobAuthorityTest, ARequestOfWhoDoesNotHaveTheKeyIsRefused) {
  const std::string token = Token("n");
  const Key owner(EVP_EC_gen("P-256")), thief(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509_REQ, Freer<X509_REQ_free>> request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), owner.get());
  ASSERT_GT(X509_REQ_sign(request.get(), thief.get(), EVP_sha256()), 0);
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  char* data = nullptr;
  const long num_bytes = BIO_get_mem_data(bio.get(), &data);
  const absl::Status refused = authority_->Enroll("n", token, std::string(data, num_bytes)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), HasSubstr("not signed by the key in it"));
}

TEST_F(JobAuthorityTest, WhatIsNoRequestIsRefused) {
  const std::string token = Token("n");
  const std::string good = MakeKeyAndRequest()->csr_pem;
  const std::string end = "-----END CERTIFICATE REQUEST-----\n";
  const std::vector<std::string> malformed = {
      "",
      "x",
      std::string(1, '\0'),
      "-----BEGIN CERTIFICATE REQUEST-----\n",
      absl::StrCat("-----BEGIN CERTIFICATE REQUEST-----\n", end),
      "x" + good,
      good + good,
      good + "x",
      good.substr(0, good.size() / 2),
      absl::StrReplaceAll(good, {{"CERTIFICATE REQUEST", "CERTIFICATE"}}),
      authority_->ca_pem(),
      MakeKeyAndRequest()->key_pem,
      // Bytes after the request, in the same block.
      absl::StrReplaceAll(good, {{end, "AAAA\n" + end}}),
      // An encrypted block, for which OpenSSL would ask the terminal.
      absl::StrReplaceAll(good, {{"REQUEST-----\nM",
                                  "REQUEST-----\nProc-Type: 4,ENCRYPTED\n"
                                  "DEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\nM"}}),
  };
  for (const std::string& request : malformed) {
    EXPECT_EQ(authority_->Enroll("n", token, request).status().code(), StatusCode::kInvalidArgument)
        << request;
  }
  const absl::Status huge = authority_->Enroll("n", token, good + std::string(kMaxPemBytes, '\n')).status();
  EXPECT_EQ(huge.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(huge), HasSubstr("more than 16384"));
  EXPECT_TRUE(authority_->Enroll("n", token, good + "\n \r\n").ok());
}

TEST_F(JobAuthorityTest, EveryByteOfARequestCounts) {
  const std::string token = Token("n");
  const std::string good = MakeKeyAndRequest()->csr_pem;
  for (size_t i = 0; i < good.size(); ++i) {
    if (good[i] == '\n') continue;
    std::string changed = good;
    changed[i] = good[i] == 'A' ? 'B' : 'A';
    // The last characters of base64 may have bits that stand for nothing.
    const auto answer = authority_->Enroll("n", token, changed);
    if (!answer.ok()) {
      EXPECT_EQ(answer.status().code(), StatusCode::kInvalidArgument);
    } else {
      EXPECT_GT(i, good.find("-----END") - 5) << changed;
    }
  }
}

TEST_F(JobAuthorityTest, TheCoordinatorsCertificateIsAServersAndHasItsAddresses) {
  const auto own = authority_->Issue({Role::kCoordinator, "head"}, {"10.0.0.1", "fe80::1", "head.cluster"});
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(CheckCredential(*own), absl::OkStatus());
  const Names names = NamesOf(own->cert_pem);
  EXPECT_THAT(names.uris, ElementsAre("trainctl://run-7.a_B/coordinator/head"));
  EXPECT_THAT(names.dns, ElementsAre(kCoordinatorName, "head.cluster"));
  EXPECT_THAT(names.ips, ElementsAre(std::string("\x0a\0\0\x01", 4),
                                     std::string("\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16)));
  EXPECT_EQ(X509_get_extended_key_usage(Read(own->cert_pem).get()), uint32_t{XKU_SSL_SERVER});
  for (const std::string& address : {std::string("a,DNS:b"), std::string(), std::string("fe80::1%eth0"),
                                     std::string("a\0b", 3), std::string(300, 'a')}) {
    EXPECT_EQ(authority_->Issue({Role::kCoordinator, "head"}, {address}).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(JobAuthorityTest, AdminsAndReadersAreClients) {
  for (const Role role : {Role::kAdmin, Role::kReader}) {
    const auto made = authority_->Issue({role, "me"});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(CheckCredential(*made), absl::OkStatus());
    EXPECT_EQ(*ParsePeer(NamesOf(made->cert_pem).uris, kJob), (Identity{role, "me"}));
    EXPECT_EQ(X509_get_extended_key_usage(Read(made->cert_pem).get()), uint32_t{XKU_SSL_CLIENT});
  }
}

TEST_F(JobAuthorityTest, CertificatesHoldFromADayBackForLongerThanARun) {
  const std::string pem = authority_->Issue({Role::kAdmin, "me"})->cert_pem;
  for (const Certificate& certificate : {Read(pem), Read(authority_->ca_pem())}) {
    time_t from = absl::ToTimeT(clock_.Now() - absl::Hours(24));
    time_t to = absl::ToTimeT(clock_.Now() + absl::Hours(400 * 24));
    EXPECT_EQ(ASN1_TIME_cmp_time_t(X509_get0_notBefore(certificate.get()), from), 0);
    EXPECT_EQ(ASN1_TIME_cmp_time_t(X509_get0_notAfter(certificate.get()), to), 0);
  }
}

TEST_F(JobAuthorityTest, EachCertificateHasItsOwnKeyAndNumber) {
  const Credential a = *authority_->Issue({Role::kAdmin, "me"});
  const Credential b = *authority_->Issue({Role::kAdmin, "me"});
  EXPECT_NE(a.key_pem, b.key_pem);
  const Certificate one = Read(a.cert_pem), other = Read(b.cert_pem);
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get0_serialNumber(one.get()), X509_get0_serialNumber(other.get())), 0);
}

TEST_F(JobAuthorityTest, NamesThatWouldNotBeReadBackAreRefused) {
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a b"),
                                  std::string("a\0", 2), std::string("\xc3\xa4"), std::string(254, 'a')}) {
    EXPECT_EQ(authority_->MakeToken(name).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(authority_->Issue({Role::kAdmin, name}).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(JobAuthority::Create(name, clock_).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(JobAuthority::Create(std::string(65, 'a'), clock_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(JobAuthority::Create(std::string(64, 'a'), clock_).ok());
  EXPECT_TRUE(authority_->Issue({Role::kAdmin, std::string(253, 'a')}).ok());
}

TEST(ParsePeer, TakesOneUriOfThisJob) {
  EXPECT_EQ(*ParsePeer({"trainctl://j/agent/n.1_x-y"}, "j"), (Identity{Role::kAgent, "n.1_x-y"}));
  EXPECT_EQ(*ParsePeer({"trainctl://j/reader/r"}, "j"), (Identity{Role::kReader, "r"}));
  const std::vector<std::vector<std::string>> refused = {
      {},
      {""},
      {"trainctl://j/agent/n", "trainctl://j/agent/n"},
      {"trainctl://other/agent/n"},
      {"trainctl://j/worker/n"},
      {"trainctl://j/Agent/n"},
      {"trainctl://j/agent/"},
      {"trainctl://j/agent"},
      {"trainctl://j/agent/n/"},
      {"trainctl://j/agent/n/x"},
      {"trainctl:///agent/n"},
      {"trainctl://j/agent/n?x"},
      {"trainctl://j/agent/n%41"},
      {" trainctl://j/agent/n"},
      {"Trainctl://j/agent/n"},
      {"https://j/agent/n"},
      {std::string("trainctl://j/agent/n\0", 21)},
      {"trainctl://j/agent/" + std::string(254, 'n')},
  };
  for (const auto& uris : refused) {
    EXPECT_EQ(ParsePeer(uris, "j").status().code(), StatusCode::kPermissionDenied)
        << (uris.empty() ? "none" : uris[0]);
  }
  EXPECT_THAT(Message(ParsePeer({"trainctl://other/agent/n"}, "j").status()),
              HasSubstr("belongs to job 'other'"));
}

TEST_F(JobAuthorityTest, WhatDoesNotFitTogetherIsNoCredential) {
  const Credential a = *authority_->Issue({Role::kAdmin, "a"});
  const Credential b = *authority_->Issue({Role::kAdmin, "b"});
  const auto foreign = *JobAuthority::Create(kJob, clock_);
  EXPECT_EQ(CheckCredential(a), absl::OkStatus());
  const std::vector<std::pair<Credential, std::string>> wrong = {
      {{b.key_pem, a.cert_pem, a.ca_pem}, "another key"},
      {{a.key_pem, a.cert_pem, foreign->ca_pem()}, "not signed by"},
      {{a.key_pem, a.cert_pem, ""}, "the authority's certificate"},
      {{a.key_pem, "", a.ca_pem}, "the certificate: not one PEM block"},
      {{"", "", a.ca_pem}, "the certificate: not one PEM block"},
      {{"", a.cert_pem, a.ca_pem}, "the certificate's key"},
      {{a.cert_pem, a.key_pem, a.ca_pem}, "BEGIN CERTIFICATE"},
      {{a.key_pem, a.cert_pem, a.ca_pem + foreign->ca_pem()}, "the authority's certificate"},
      {{a.key_pem, std::string(kMaxPemBytes + 1, 'x'), a.ca_pem}, "more than 16384"},
  };
  for (const auto& [credential, words] : wrong) {
    const absl::Status status = CheckCredential(credential);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(Message(status), HasSubstr(words));
  }
}

// ---- of a job whose agents come uninvited -------------------------------------------------------

class JobSecretTest : public testing::Test {
 protected:
  JobSecretTest()
      : secret_(*MakeJobSecret("llm", clock_)), authority_(*JobAuthority::Open(kJob, secret_, clock_)) {}

  // As the agent of `node` asks, with the key that it was given.
  absl::StatusOr<std::string> Enroll(const std::string& node, const std::string& nonce,
                                     const std::string& csr) {
    return authority_->EnrollWithKey(node, nonce, EnrolmentProof(NodeKey(secret_, node), node, nonce, csr),
                                     csr);
  }

  FakeClock clock_;
  const JobSecret secret_;
  const std::unique_ptr<JobAuthority> authority_;
};

TEST_F(JobSecretTest, WhoHasTheKeyOfANodeGetsACertificateForIt) {
  const KeyAndRequest mine = *MakeKeyAndRequest();
  const auto pem = Enroll("llm-1", "n1", mine.csr_pem);
  ASSERT_TRUE(pem.ok()) << pem.status();
  EXPECT_THAT(NamesOf(*pem).uris, ElementsAre("trainctl://run-7.a_B/agent/llm-1"));
  // What checks it was in the secret before there was a launcher.
  EXPECT_TRUE(CheckCredential({mine.key_pem, *pem, secret_.authority.ca_pem}).ok());
}

TEST_F(JobSecretTest, AnAgentThatIsStartedAgainComesWithTheSameKeyOfItsNode) {
  EXPECT_TRUE(Enroll("llm-1", "n1", MakeKeyAndRequest()->csr_pem).ok());
  EXPECT_TRUE(Enroll("llm-1", "n2", MakeKeyAndRequest()->csr_pem).ok());
}

TEST_F(JobSecretTest, AProofThatIsShownAgainServesItsOwnKeyAlone) {
  const KeyAndRequest mine = *MakeKeyAndRequest(), other = *MakeKeyAndRequest();
  const std::string proof = EnrolmentProof(NodeKey(secret_, "llm-1"), "llm-1", "n1", mine.csr_pem);
  // Even before its owner has used it.
  const absl::Status stolen = authority_->EnrollWithKey("llm-1", "n1", proof, other.csr_pem).status();
  EXPECT_THAT(Message(stolen), HasSubstr("not made with the key of node"));
  const auto first = authority_->EnrollWithKey("llm-1", "n1", proof, mine.csr_pem);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*authority_->EnrollWithKey("llm-1", "n1", proof, mine.csr_pem), *first)
      << "an answer that was lost";
  const absl::Status again = Enroll("llm-1", "n1", other.csr_pem).status();
  EXPECT_EQ(again.code(), StatusCode::kPermissionDenied) << "a nonce serves once, even with the key";
  EXPECT_THAT(Message(again), HasSubstr("was used already"));
}

TEST_F(JobSecretTest, ANodesKeySaysNothingForAnother) {
  const std::string csr = MakeKeyAndRequest()->csr_pem;
  const std::string key = NodeKey(secret_, "llm-1");
  EXPECT_NE(key, NodeKey(secret_, "llm-2"));
  EXPECT_NE(key, secret_.key);
  for (const std::string& proof :
       {EnrolmentProof(key, "llm-2", "n", csr), EnrolmentProof(key, "llm-1", "n", csr), std::string(), key}) {
    EXPECT_EQ(authority_->EnrollWithKey("llm-2", "n", proof, csr).status().code(),
              StatusCode::kPermissionDenied);
  }
}

TEST_F(JobSecretTest, PartsOfAProofCannotBeShiftedIntoEachOther) {
  const std::string csr = MakeKeyAndRequest()->csr_pem;
  const std::string proof = EnrolmentProof(NodeKey(secret_, "a"), "a", "b\nc", csr);
  EXPECT_FALSE(authority_->EnrollWithKey("a", "b\nc", proof, csr).ok());
  EXPECT_FALSE(authority_->EnrollWithKey("a", "b", proof, "c\n" + csr).ok());
}

TEST_F(JobSecretTest, ATokenOfAnInvitationAndAProofAreNotTheSame) {
  const KeyAndRequest mine = *MakeKeyAndRequest();
  const std::string token = *authority_->MakeToken("llm-0");
  EXPECT_FALSE(authority_->EnrollWithKey("llm-0", "n", token, mine.csr_pem).ok());
  EXPECT_TRUE(authority_->Enroll("llm-0", token, mine.csr_pem).ok());
  const auto without_secret = *JobAuthority::Create(kJob, clock_);
  EXPECT_EQ(without_secret->EnrollWithKey("n", "n", EnrolmentProof("", "n", "n", mine.csr_pem), mine.csr_pem)
                .status()
                .code(),
            StatusCode::kPermissionDenied);
}

TEST_F(JobSecretTest, IsWrittenAndReadBack) {
  const auto read = ParseJobSecret(FormatJobSecret(secret_));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(NodeKey(*read, "n"), NodeKey(secret_, "n"));
  EXPECT_TRUE(JobAuthority::Open(kJob, *read, clock_).ok());
  JobSecret mixed = *MakeJobSecret("llm", clock_);
  mixed.authority.key_pem = secret_.authority.key_pem;
  EXPECT_EQ(JobAuthority::Open(kJob, mixed, clock_).status().code(), StatusCode::kInvalidArgument);
  for (const char* text :
       {"", "{}", "[]", R"({"schema": "trainctl.job-secret.v2"})",
        R"({"schema": "trainctl.job-secret.v1", "authority": "", "authority_key": "", "key": ""})"}) {
    EXPECT_FALSE(ParseJobSecret(text).ok()) << text;
  }
}

TEST(JobSecretFile, IsRefusedWhereOthersCanReadIt) {
  const std::string path = testing::TempDir() + "/trainctl-job-secret";
  ASSERT_TRUE(WriteSecretFile(path, "secret").ok());
  for (const auto& [mode, is_taken] : {std::pair{0400, true}, {0440, true}, {0404, false}, {0420, false}}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(ReadSecret(path).ok(), is_taken) << std::oct << mode;
  }
  ::unlink(path.c_str());
  EXPECT_FALSE(ReadSecret(path).ok());
}

}  // namespace
}  // namespace trainctl::rpc
