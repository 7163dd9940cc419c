package luascript

import "testing"

// TestARefusalInsideAScriptIsNamed, with the words of Redis 8.0. The other tests of this
// package see the words of 7.0.
func TestARefusalInsideAScriptIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR ACL failure in script: User shop has no permissions to run the 'zrem' command script: " +
			"fc6b21d5211661dd5df205822daa8e1f53f631b7, on @user_script:81.": "NOPERM User shop has no permissions to run the " +
			"'zrem' command",
		"ERR ACL failure in script: No permissions to access a key script: 966ad4efa843a690de264a3054e7df37e195bc82, on " +
			"@user_script:1.": "NOPERM No permissions to access a key",
		"ERR ACL failure in script: No permissions to access a key": "NOPERM No permissions to access a key",
	} {
		if err := (&Client{}).explain(deniedError(text)); err.Error() != want || !Denied(err) || !Definite(err) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
