// An auditor that wants nothing (rtld-audit(7)).
unsigned la_version(unsigned version) { return version; }
