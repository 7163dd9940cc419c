package console

import (
	"net/http"
	"strings"
)

const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out"
)

// signInView has everything that the form shows.
type signInView struct {
	Next         string
	Users, Token bool
	Refused      bool
}

func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request) {
	c.signInPage(w, r, http.StatusOK)
}

func (c *Console) signInPage(w http.ResponseWriter, r *http.Request, status int) {
	v := signInView{Next: local(r.FormValue("next")), Users: c.access.users != nil, Token: c.access.token() != "",
		Refused: status != http.StatusOK}
	c.write(w, r, status, c.signInForm, page{Title: "Sign in", Body: v})
}

// signIn takes the form. A token comes without a user.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	name, secret := r.PostFormValue("user"), r.PostFormValue("password")
	if token := r.PostFormValue("token"); token != "" {
		name, secret = "", token
	}
	s, right := c.access.signIn(r.Context(), name, secret)
	if !right {
		c.log.WarnContext(r.Context(), "sign-in refused", "user", name, "remote", r.RemoteAddr)
		c.signInPage(w, r, http.StatusUnauthorized)
		return
	}
	c.log.InfoContext(r.Context(), "signed in", "user", name, "remote", r.RemoteAddr)
	http.SetCookie(w, c.access.begin(s, encrypted(r)))
	http.Redirect(w, r, local(r.PostFormValue("next")), http.StatusSeeOther)
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, c.access.end(r))
	http.Redirect(w, r, signInPath, http.StatusSeeOther)
}

// local returns a path of this server, and / for everything else.
func local(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}
